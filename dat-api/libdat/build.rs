//! What the linker is told: the name that programs ask the loader for, and
//! whose calls are in our table. And the part in C: cancellation points.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libdat.so.1");
    // The table of the provider has our own calls in it, whatever other library
    // that exports the same names is in the process.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=c/cancel.c");
    cc::Build::new()
        .file("c/cancel.c")
        .std("gnu11")
        // Unwound by cancellation, which calls what the frames have registered.
        .flag("-fexceptions")
        .warnings_into_errors(cfg!(debug_assertions))
        .compile("libdat_cancel");
}
