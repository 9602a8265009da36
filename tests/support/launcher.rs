//! Builds the workspace's programs and libraries for tests that run them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Returns the folder of the libraries and programs, built with the profile of
/// this test.
pub(crate) fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let tests = std::env::current_exe().expect("this binary has a path");
        let folder = tests.ancestors().nth(2).expect("deps is in a folder");
        // Set by scripts that have built everything, and test it by hundreds of processes.
        if std::env::var_os("TESTS_ARE_BUILT").is_some() {
            return folder.to_owned();
        }
        let release = folder.file_name().is_some_and(|name| name == "release");
        let built = Command::new(env!("CARGO"))
            // Builds everything that tests need in one command, so that the
            // features are the same each time. Otherwise cargo would rebuild
            // artifacts under running tests.
            .args(["build", "--quiet", "--workspace", "--lib", "--bins"])
            .args(["--examples", "--target-dir"])
            .arg(folder.parent().expect("the target folder"))
            .args(release.then_some("--release"))
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status()
            .expect("cargo runs");
        assert!(built.success(), "the workspace does not build");
        folder.to_owned()
    })
}

/// Returns the path of a library or program, which must have been built.
pub(crate) fn artifact(name: &str) -> PathBuf {
    let artifact = folder().join(name);
    assert!(artifact.is_file(), "{} was not built", artifact.display());
    artifact
}

/// Returns the path of the emulator's launcher.
pub(crate) fn launcher() -> &'static Path {
    static LAUNCHER: OnceLock<PathBuf> = OnceLock::new();
    LAUNCHER.get_or_init(|| artifact("mlx5-emu"))
}

/// Returns the name of a fabric that no other test uses.
pub(crate) fn fabric() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let package = env!("CARGO_PKG_NAME");
    format!("{package}-{}-{count}", std::process::id())
}
