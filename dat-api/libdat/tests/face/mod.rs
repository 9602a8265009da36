//! The C interface as C programs use it: bad handles, null pointers, masks,
//! return codes, and objects as C sees them.

mod arguments;
pub(crate) mod calls;
pub(crate) mod common;
pub(crate) mod fixture;
mod handles;
mod launcher;
mod objects;
mod queries;
mod registry;
mod roles;
mod status;
