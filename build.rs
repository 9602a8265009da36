//! Finds rdma-core once for the whole workspace (`dv-sys` includes this file). If
//! rdma-core is missing, the build fails with one line that names the packages to
//! install.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    rdma_core::probe();
    // Exports the symbols of the test binaries, so that libibverbs calls the
    // emulator's interposed libc functions in them.
    println!("cargo::rustc-link-arg-tests=-rdynamic");
}

#[path = "build/scripts/rdma_core.rs"]
mod rdma_core;
