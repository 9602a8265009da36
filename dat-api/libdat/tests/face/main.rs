//! The C face as C programs meet it: bad handles, null pointers, masks, return
//! codes, and what objects look like from outside.

mod arguments;
mod common;
#[path = "../support/emulator.rs"]
mod emulator;
mod handles;
mod launcher;
mod objects;
mod queries;
mod registry;
mod roles;
mod status;
mod world;
