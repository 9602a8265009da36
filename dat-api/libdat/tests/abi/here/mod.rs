//! The items of `dat::abi` with their names, which Rust cannot list by itself.

mod layouts;
mod types;
mod values;

pub(crate) use layouts::layouts;
pub(crate) use types::{Type, types};
pub(crate) use values::values;
