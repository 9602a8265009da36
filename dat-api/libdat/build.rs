//! Generates `abi.rs` from the headers in `include/dat`, compiles the C part (the
//! cancellation points), and sets the soname and the symbol binding of the
//! library.

#[path = "build/abi.rs"]
mod abi;

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libdat.so.1");
    abi::bind_own_functions();
    println!("cargo::rerun-if-changed=build.rs");
    abi::compile(&["c/cancel.c"]);
    abi::generate("dat");
}
