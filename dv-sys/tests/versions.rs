//! The build's messages about an rdma-core that it cannot use: one line, with the
//! remedy. Each case has its own fake pkg-config modules.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

#[path = "../build/rdma_core.rs"]
mod rdma_core;

/// The probe itself. The tests run it in a process with other modules, because it
/// prints build directives and exits.
#[test]
#[ignore = "the other tests run it"]
fn probe() {
    let _ = rdma_core::probe();
}

/// A prefix with fake modules, headers and libraries.
struct Prefix(PathBuf);

impl Prefix {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("prefix-{name}-{}", std::process::id()));
        for part in ["include/infiniband", "include/rdma", "lib"] {
            fs::create_dir_all(folder.join(part)).expect("a temporary folder");
        }
        for header in [
            "infiniband/verbs.h",
            "infiniband/mlx5dv.h",
            "rdma/rdma_cma.h",
        ] {
            fs::write(folder.join("include").join(header), "").expect("a header");
        }
        Self(folder)
    }

    fn module(&self, name: &str, version: &str) -> &Self {
        let folder = self.0.display();
        let text = format!(
            "Name: {name}\nDescription: made up\nVersion: {version}\nLibs: -L{folder}/lib -l{}\n\
             Cflags: -I{folder}/include\n",
            name.trim_start_matches("lib")
        );
        fs::write(self.0.join(format!("{name}.pc")), text).expect("a module");
        fs::write(self.0.join(format!("lib/{name}.so")), "").expect("a library");
        self
    }

    fn modules(&self, ibverbs: &str, mlx5: &str, rdmacm: &str) -> &Self {
        self.module("libibverbs", ibverbs)
            .module("libmlx5", mlx5)
            .module("librdmacm", rdmacm)
    }

    /// Returns the probe's error, if it reported one.
    fn probe(&self) -> Option<String> {
        probe_in(&self.0)
    }
}

impl Drop for Prefix {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn probe_in(modules: &Path) -> Option<String> {
    let output = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "versions::probe", "--ignored", "--nocapture"])
        .env("PKG_CONFIG_LIBDIR", modules)
        .env_remove("PKG_CONFIG_PATH")
        .env_remove("PKG_CONFIG_SYSROOT_DIR")
        .output()
        .expect("this program runs");
    let stdout = String::from_utf8(output.stdout).expect("text");
    let errors: Vec<&str> = stdout
        .lines()
        .filter_map(|line| line.split_once("cargo::error=").map(|(_, error)| error))
        .collect();
    assert_eq!(output.status.success(), errors.is_empty(), "{stdout}");
    assert!(errors.len() < 2, "{stdout}");
    errors.first().map(|&error| error.to_owned())
}

#[track_caller]
fn assert_contains(error: Option<String>, parts: &[&str]) {
    let error = error.expect("an error");
    for part in parts.iter().chain(&["apt-get install", "dnf install"]) {
        assert!(error.contains(part), "{part:?} is not in {error:?}");
    }
}

#[test]
fn a_current_rdma_core_is_accepted() {
    let prefix = Prefix::new("current");
    prefix.modules("1.17.64.0", "1.27.64.0", "1.4.64.0");
    assert_eq!(prefix.probe(), None);
    // The version scheme of OFED.
    prefix.modules("1.14.2404mlnx51.0", "1.24.2404mlnx51.0", "1.3.2404mlnx51.0");
    assert_eq!(prefix.probe(), None);
}

#[test]
fn a_missing_rdma_core_is_reported_with_its_packages() {
    assert_contains(
        probe_in(Path::new("/nonexistent")),
        &["libibverbs 1.14.44 or newer", "was not found"],
    );
}

#[test]
fn an_old_rdma_core_is_reported_with_its_version() {
    let prefix = Prefix::new("old");
    prefix.modules("1.12.34.0", "1.19.34.0", "1.3.34.0");
    assert_contains(
        prefix.probe(),
        &[
            "libibverbs 1.12.34.0 is too old",
            "1.14.44 or newer",
            "rdma-core 44",
        ],
    );
}

#[test]
fn missing_libraries_are_reported() {
    let prefix = Prefix::new("headers");
    prefix.modules("1.14.44.0", "1.24.44.0", "1.3.44.0");
    fs::remove_file(prefix.0.join("lib/libmlx5.so")).expect("the library");
    assert_contains(
        prefix.probe(),
        &["libmlx5 1.24.44.0", "libmlx5.so is not in"],
    );
}

#[test]
fn libraries_of_two_versions_are_refused() {
    let prefix = Prefix::new("two");
    prefix.modules("1.17.64.0", "1.24.44.0", "1.4.64.0");
    assert_contains(
        prefix.probe(),
        &[
            "libibverbs 1.17.64.0 and libmlx5 1.24.44.0",
            "PKG_CONFIG_PATH",
        ],
    );
}
