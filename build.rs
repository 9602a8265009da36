//! Finds rdma-core once, for every package of the workspace that needs it
//! (`dv-sys` includes this file), and fails with one line that names the
//! packages to install.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    rdma_core::probe();
    // libibverbs must find the emulator's interposed libc calls in the test
    // binaries themselves, so those export their symbols.
    println!("cargo::rustc-link-arg-tests=-rdynamic");
}

#[path = "build/rdma_core.rs"]
mod rdma_core;
