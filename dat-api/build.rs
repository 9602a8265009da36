//! The device tests bring the emulated NIC into their own process: libibverbs
//! must find its libc calls in the test binary, which exports its symbols.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-link-arg-tests=-rdynamic");
}
