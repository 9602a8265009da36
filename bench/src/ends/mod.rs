//! The ends of measured connections, through the engine, DAT's Rust types, the C calls of
//! uDAPL 1.2 and 2.0, and libmlx5. A module names only those below it in this table.
//!
//! | module | contents |
//! |---|---|
//! | `memory_end` | an end in memory, for tests of the loops |
//! | `link` | an end with its messages: what the loops of `lat` and `bw` post and poll |
//! | `setup` | what all ends of a run have in common |
//! | `numbered` | messages with slots, values or pieces of their own |
//! | `engine`, `rust`, `udapl`, `libmlx5` | the APIs and their ends |
//! | `device_port` | the device and port of a run |
//! | `dat` | connecting by private data: DAT's connections and rdma_cm's |
//! | `interface` | traits of the measured APIs: connecting two ends |
//! | `watchdog` | why a loop stops early; timeouts |
//! | `end` | trait of the ends: posting and polling |
//! | `payload` | the memory of messages |
//! | `pattern` | the bytes of a message |
//! | `probe` | what a queue pair of the device says, for APIs that cannot ask |

mod dat;
mod device_port;
pub(crate) mod end;
pub(crate) mod engine;
pub(crate) mod interface;
pub(crate) mod libmlx5;
mod link;
#[cfg(test)]
pub(crate) mod memory_end;
mod numbered;
mod pattern;
pub(crate) mod payload;
mod probe;
pub(crate) mod rust;
mod setup;
pub(crate) mod udapl;
mod watchdog;

pub(crate) use device_port::{DevicePort, Needs};
pub(crate) use end::{End, LONGEST_LIST};
pub(crate) use interface::{RemoteInterface, Role};
pub(crate) use link::{CompletionResult, Link};
pub(crate) use setup::Setup;
pub(crate) use watchdog::{Stop, Watchdog};
