//! C programs that are linked with the library of this build.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::emulator::launcher;

/// The package whose library the programs use.
const PACKAGE: &str = env!("CARGO_PKG_NAME");
/// The soname of the library, and the value of `UDAPL` for `version.h`.
const SONAME: &str = if is_2() {
    "libdat2.so.2"
} else {
    "libdat.so.1"
};
const UDAPL: &str = if is_2() { "-DUDAPL=2" } else { "-DUDAPL=1" };

/// Runs a program under valgrind, and fails if that finds an error or a leak.
#[allow(dead_code, reason = "not every test uses it")]
pub(crate) const VALGRIND: [&str; 6] = [
    "valgrind",
    "--quiet",
    "--error-exitcode=99",
    "--leak-check=full",
    "--errors-for-leak-kinds=definite",
    "--show-leak-kinds=definite",
];
/// Options of the launcher: a network that loses and delays packets, which connections hide.
#[allow(dead_code, reason = "not every test uses it")]
pub(crate) const FAULTS: [&str; 2] = ["--faults", "seed=5,drop=0.02,delay=0.05:100us"];

/// Returns whether the programs are of uDAPL 2.0.
pub(crate) const fn is_2() -> bool {
    matches!(PACKAGE.as_bytes(), b"libdat2")
}

/// A program, and the folder with the library under its soname.
pub(crate) struct CProgram {
    pub(crate) path: PathBuf,
    pub(crate) libraries: PathBuf,
}

impl CProgram {
    /// Compiles these sources of the folder `tests/NAME`, or, for programs that both
    /// versions of uDAPL have, of that folder of `libdat`.
    pub(crate) fn build(name: &str, sources: &[&str]) -> Self {
        // Called first: it may have to rebuild the library.
        launcher();
        let libraries = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{PACKAGE}-{name}"));
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
        let own = base.join("tests").join(name);
        let shared = base.join("../libdat/tests").join(name);
        let path_of = |source: &&str| match own.join(source) {
            path if path.is_file() => path,
            _ => shared.join(source),
        };
        put(name, &|place| {
            let output = Command::new("cc")
                .args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror"])
                .args(["-pthread", UDAPL, "-I"])
                .arg(base.join("include"))
                .arg("-I")
                .arg(&shared)
                .arg("-o")
                .arg(place)
                .args(sources.iter().map(path_of))
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
