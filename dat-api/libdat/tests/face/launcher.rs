//! Tests that need a device start themselves again, each on an emulated one.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Set in a test that was started again.
const INSIDE: &str = "LIBDAT_TEST_INSIDE";

/// The emulator's launcher, built with the profile of this test.
pub(crate) fn launcher() -> &'static Path {
    static LAUNCHER: OnceLock<PathBuf> = OnceLock::new();
    LAUNCHER.get_or_init(|| {
        let tests = std::env::current_exe().expect("this binary has a path");
        let folder = tests.ancestors().nth(2).expect("deps is in a folder");
        let release = folder.file_name().is_some_and(|name| name == "release");
        let built = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "-p", "mlx5-emulator", "--target-dir"])
            .arg(folder.parent().expect("the target folder"))
            .args(release.then_some("--release"))
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status()
            .expect("cargo runs");
        assert!(built.success(), "the emulator does not build");
        let launcher = folder.join("mlx5-emu");
        assert!(launcher.is_file(), "{} was not built", launcher.display());
        launcher
    })
}

/// Runs `test` on an emulated device that no other test has; `name` is the
/// path of the calling test in this binary.
pub(crate) fn on_a_device(name: &str, test: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        return test();
    }
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let fabric = format!("libdat-{}-{count}", std::process::id());
    let output = Command::new(launcher())
        .args(["run", "--fabric", &fabric, "--"])
        .arg(std::env::current_exe().expect("this binary has a path"))
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(INSIDE, "1")
        .output()
        .expect("the launcher runs");
    let told = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && told.contains("1 passed"),
        "{name} on a device: {}\n{told}\n{complaint}",
        output.status
    );
}
