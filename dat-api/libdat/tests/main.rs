//! The C library of uDAPL 1.2: its ABI, its calls, and programs that are linked with it.

mod abi;
#[path = "support/c_program.rs"]
mod c_program;
mod cancel;
#[path = "../../../tests/support/launcher.rs"]
mod emulator;
mod examples_c;
mod face;
#[path = "../../../tests/support/free_port.rs"]
mod free_port;
#[allow(unreachable_pub, reason = "a test binary has no interface")]
#[path = "../../../tests/support/given.rs"]
mod given;
mod install;
mod install_refused;
mod man;
mod memory;
mod random_calls;
mod refusals;
mod registry;
mod secure;
#[path = "../../../tests/support/tool.rs"]
mod tool;
