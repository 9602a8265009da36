//! What the linker is told: the name that programs ask the loader for, and
//! whose calls are in our table.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libdat.so.1");
    // The table of the provider has our own calls in it, whatever other library
    // that exports the same names is in the process.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
    println!("cargo::rerun-if-changed=build.rs");
}
