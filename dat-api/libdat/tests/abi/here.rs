//! The items of `dat::abi` that the facts name. The build script writes the names as calls of the
//! macros.

use crate::abi::facts::Layout;
use crate::abi::listed::{Signatures, Type, layouts, pointers, types, values};
use dat::abi::*;

/// Returns every enumerator and integer macro.
pub(crate) fn values() -> Vec<(&'static str, i128)> {
    include!(concat!(env!("OUT_DIR"), "/values.rs"))
}

/// Returns every type except function types.
pub(crate) fn types() -> Vec<Type> {
    include!(concat!(env!("OUT_DIR"), "/types.rs"))
}

/// Returns every struct and union.
pub(crate) fn layouts() -> Vec<Layout> {
    include!(concat!(env!("OUT_DIR"), "/layouts.rs"))
}

/// Returns every type of a pointer to a function.
pub(crate) fn pointers() -> Signatures {
    include!(concat!(env!("OUT_DIR"), "/pointers.rs"))
}
