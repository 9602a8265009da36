//! uDAPL 1.2 for C programs: `libdat.so.1`.
//!
//! [`abi`] is what C sees, in Rust: the types and values of the headers in
//! `include/dat`.

pub mod abi;
