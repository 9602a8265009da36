//! The name that programs linked with the library ask the loader for.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libdat.so.1");
    println!("cargo::rerun-if-changed=build.rs");
}
