//! How a build script ends when something is not installed.

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
