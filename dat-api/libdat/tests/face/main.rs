//! The C interface as C programs use it: bad handles, null pointers, masks,
//! return codes, and objects as C sees them.

mod arguments;
mod calls;
mod common;
#[path = "../../../../tests/support/launcher.rs"]
mod emulator;
mod fixture;
#[allow(unreachable_pub, reason = "a test binary has no interface")]
#[path = "../../../../tests/support/given.rs"]
mod given;
mod handles;
mod launcher;
mod objects;
mod queries;
mod registry;
mod roles;
mod status;
