//! The probe for what rdma-core and clang must have installed.

use std::path::PathBuf;

/// The libraries and the oldest version of each that this project builds
/// against: rdma-core 44, what Debian 12 has.
const LIBRARIES: [(&str, &str); 3] = [
    ("libibverbs", "1.14.44"),
    ("libmlx5", "1.24.44"),
    ("librdmacm", "1.3.44"),
];

/// Finds libibverbs, libmlx5 and librdmacm; returns their include folders.
///
/// Ends the build with one line that names the packages if one is missing.
pub(crate) fn probe() -> Vec<PathBuf> {
    let mut include = Vec::new();
    for (library, version) in LIBRARIES {
        match pkg_config::Config::new()
            .atleast_version(version)
            .probe(library)
        {
            Ok(found) => include.extend(found.include_paths),
            Err(pkg_config::Error::Command { cause, .. }) => {
                fail(&format!("pkg-config cannot be run ({cause})"))
            }
            Err(_) => fail(&format!("{library} >= {version} (rdma-core) was not found")),
        }
    }
    include.sort();
    include.dedup();
    include
}

/// Ends the build with one line that says what is missing and how to get it.
pub(crate) fn fail(what: &str) -> ! {
    // The `error=` directive is shown by cargo on its own, without the
    // panic's noise around it.
    println!(
        "cargo::error={what}; install it with: apt-get install libibverbs-dev librdmacm-dev \
         ibverbs-providers pkg-config libclang-dev clang (Fedora, RHEL: dnf install \
         rdma-core-devel pkgconf clang-devel)"
    );
    std::process::exit(1)
}
