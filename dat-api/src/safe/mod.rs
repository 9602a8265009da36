//! The DAT objects as safe Rust types.
//!
//! | DAT | here |
//! | --- | --- |
//! | IA, interface adapter | [`Adapter`] |
//! | PZ, protection zone | [`ProtectionZone`] |
//! | LMR, local memory region | [`Memory`]: allocates what it registers |
//! | RMR, remote memory region | [`Window`] |
//! | EVD, event dispatcher | [`EventDispatcher`] |
//! | CNO, notification object | [`Cno`] |
//! | EP, endpoint | [`Endpoint`] |
//! | SRQ, shared receive queue | [`SharedReceiveQueue`] |
//! | PSP, public service point | [`ServicePoint`] |
//! | RSP, reserved service point | [`ReservedPoint`] |
//! | CR, connection request | [`ConnectionRequest`] |
//!
//! An object is freed when its last owner lets go of it, and an object that
//! uses another owns it as well: there is no order to keep. Those that may be
//! used by several threads at a time are `Clone`, and a clone is the same
//! object; the others are posted to by `&mut self`, so that posting needs no
//! lock.
//!
//! Memory is shared with the device, which may write it at any time. It is
//! therefore never seen as a slice: [`Memory::write`] and [`Memory::read`] copy,
//! on any thread, and [`Memory::load_u64`] reads a flag that a peer sets.

mod adapter;
mod cno;
mod dispatcher;
mod endpoint;
mod memory;
mod service;
mod shared;
mod window;

// How to wait is the engine's matter; who uses these types names it here.
pub use dat_engine::wait::{WaitCounters, WaitPolicy};

pub use crate::object::counters::Counters;
pub use adapter::{Adapter, OpenOptions, ProtectionZone};
pub use cno::Cno;
pub use dispatcher::{EventDispatcher, Waited};
pub use endpoint::{Endpoint, EndpointOptions};
pub use memory::{Memory, RemoteSegment, Segment};
pub use service::{ConnectionRequest, ReservedPoint, ServicePoint};
pub use shared::SharedReceiveQueue;
pub use window::Window;
