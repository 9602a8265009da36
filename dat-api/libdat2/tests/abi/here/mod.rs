//! The items of `dat2::abi` with their names.

mod layouts;
mod pointers;
mod types;
mod values;

pub(crate) use layouts::layouts;
pub(crate) use pointers::pointers;
pub(crate) use types::types;
pub(crate) use values::values;
