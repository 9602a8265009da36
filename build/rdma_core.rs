//! The probe for rdma-core's libraries and headers.

/// The oldest rdma-core this project builds against: the first whose
/// `mlx5dv.h` has everything the engine takes from it.
pub(crate) const OLDEST: &str = "1.14.33";

/// Finds libibverbs, libmlx5 and librdmacm; returns their include folders.
///
/// # Panics
/// With one line that names the packages to install.
pub(crate) fn probe() -> Vec<std::path::PathBuf> {
    let mut include = Vec::new();
    for (library, version) in [("libibverbs", OLDEST), ("libmlx5", "1.24"), ("librdmacm", "1.3")] {
        match pkg_config::Config::new().atleast_version(version).probe(library) {
            Ok(found) => include.extend(found.include_paths),
            Err(cause) => panic!(
                "\n\nrdma-core's {library} >= {version} was not found. Install it first:\n  \
                 Debian, Ubuntu: apt-get install libibverbs-dev librdmacm-dev ibverbs-providers pkg-config\n  \
                 Fedora, RHEL:   dnf install rdma-core-devel pkgconf\n\n({cause})\n"
            ),
        }
    }
    include
}
