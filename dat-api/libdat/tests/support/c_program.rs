//! C programs that are linked with the library of this build.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::emulator::launcher;

/// The package whose library the programs use.
const PACKAGE: &str = env!("CARGO_PKG_NAME");
const SONAME: &str = match PACKAGE.as_bytes() {
    b"libdat2" => "libdat2.so.2",
    _ => "libdat.so.1",
};

/// A program, and the folder with the library under its soname.
pub(crate) struct CProgram {
    pub(crate) path: PathBuf,
    pub(crate) libraries: PathBuf,
}

impl CProgram {
    /// Compiles these sources of the folder `tests/NAME`.
    pub(crate) fn build(name: &str, sources: &[&str]) -> Self {
        // Called first: it may have to rebuild the library.
        launcher();
        let libraries = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&libraries).expect("the folder can be created");
        let tests = std::env::current_exe().expect("this binary has a path");
        let library = tests
            .parent()
            .expect("a folder")
            .join(format!("{PACKAGE}.so"));
        let process = std::process::id();
        // Another test process may do the same at the same time.
        let put = |name: &str, make: &dyn Fn(&Path)| {
            let mine = libraries.join(format!("{name}.{process}"));
            make(&mine);
            std::fs::rename(&mine, libraries.join(name)).expect("the file can be renamed");
        };
        put(SONAME, &|place| {
            let _ = std::fs::remove_file(place);
            std::os::unix::fs::symlink(&library, place).expect("the link can be created");
        });
        let base = Path::new(env!("CARGO_MANIFEST_DIR"));
        let folder = base.join("tests").join(name);
        put(name, &|place| {
            let output = Command::new("cc")
                .args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror"])
                .args(["-pthread", "-I"])
                .arg(base.join("include"))
                .arg("-o")
                .arg(place)
                .args(sources.iter().map(|source| folder.join(source)))
                .arg(&library)
                .output()
                .expect("cc can be run");
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{stderr}");
        });
        Self {
            path: libraries.join(name),
            libraries,
        }
    }
}
