//! The C library of uDAPL 2.0: its ABI, its calls, and programs that are linked with it. Tests
//! that both libraries pass are those of `libdat`.

// The name of the crate that the shared tests of the ABI examine.
extern crate dat2 as dat;

mod abi;
mod both;
#[path = "../../libdat/tests/support/c_program.rs"]
mod c_program;
#[path = "../../libdat/tests/cancel.rs"]
mod cancel;
#[path = "../../../tests/support/launcher.rs"]
mod emulator;
mod extensions;
mod install;
#[path = "../../libdat/tests/memory.rs"]
mod memory;
mod programs;
#[path = "../../libdat/tests/random_calls.rs"]
mod random_calls;
#[path = "../../../tests/support/tool.rs"]
mod tool;
mod transfer;
