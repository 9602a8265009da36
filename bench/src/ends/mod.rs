//! The ends of measured connections, through the engine, DAT's Rust types, the C calls of
//! uDAPL 1.2 and 2.0, and libmlx5; and what commands with a client and a server have in
//! common.
//!
//! ```text
//! opened         options → device → APIs
//! device_port    the device and port of a run
//! setup amount   what all ends have in common; sizes, rounds and turns of the APIs
//! interface      traits of the measured APIs: connecting two ends
//! end            trait of the ends: posting and polling
//! engine rust udapl libmlx5   the APIs and their ends
//! dat            connecting by private data: DAT's connections and rdma_cm's
//! link payload   an end with its messages; their memory
//! sides          the connected sides of a run, in one process or two
//! probe          what a queue pair of the device says, for APIs that cannot ask
//! watchdog       why a loop stops early; timeouts
//! serve          the server: clients one after another
//! memory_end     an end in memory, for tests of the loops
//! ```

mod amount;
mod dat;
mod device_port;
pub(crate) mod end;
pub(crate) mod engine;
pub(crate) mod interface;
pub(crate) mod libmlx5;
mod link;
#[cfg(test)]
pub(crate) mod memory_end;
mod opened;
mod payload;
mod probe;
pub(crate) mod rust;
mod serve;
mod setup;
mod sides;
pub(crate) mod udapl;
mod watchdog;

pub(crate) use amount::Amount;
pub(crate) use device_port::Needs;
pub(crate) use end::{End, LONGEST_LIST};
pub(crate) use interface::{RemoteInterface, Role};
pub(crate) use link::{CompletionResult, Link};
pub(crate) use opened::{Opened, open};
pub(crate) use serve::{Server, explain};
pub(crate) use setup::Setup;
pub(crate) use sides::{Connection, OpenInterface, Sides};
pub(crate) use watchdog::{Stop, Watchdog};
