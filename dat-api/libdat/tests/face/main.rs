//! The C face as C programs meet it: bad handles, null pointers, masks, return
//! codes, and what objects look like from outside.

mod arguments;
mod common;
#[path = "../../../../tests/support/launcher.rs"]
mod emulator;
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
mod world;
