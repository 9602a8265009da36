//! The DAT objects as safe Rust types.
//!
//! | DAT | type |
//! | --- | --- |
//! | IA, interface adapter | [`Adapter`] |
//! | PZ, protection zone | [`ProtectionZone`] |
//! | LMR, local memory region | [`Memory`], allocated or of an owner |
//! | RMR, remote memory region | [`Window`] |
//! | EVD, event dispatcher | [`EventDispatcher`] |
//! | CNO, notification object | [`Cno`] |
//! | EP, endpoint | [`Endpoint`] |
//! | SRQ, shared receive queue | [`SharedReceiveQueue`] |
//! | PSP, public service point | [`ServicePoint`] |
//! | RSP, reserved service point | [`ReservedServicePoint`] |
//! | CR, connection request | [`ConnectionRequest`] |
//!
//! # Lifetimes
//! An object is freed when its last owner is dropped, and an object owns those that it uses. A
//! program may drop them in any order.
//!
//! # Threads
//! Types that several threads may use at a time are `Clone`, and a clone is the same object.
//! [`Endpoint`] and [`Window`] are not: posting takes `&mut self`, so that it needs no lock.
//!
//! # Memory
//! The device shares memory with the program, and may write it at any time. Memory is therefore
//! never a slice: [`Memory::write`] and [`Memory::read`] copy, on any thread, also numbers
//! ([`Memory::read_value`]), and [`Memory::load_u64`] reads a flag that a peer sets. The bytes are
//! allocated ([`ProtectionZone::allocate`]), or those of a value that the memory owns, such as a
//! `Vec<u8>` ([`ProtectionZone::register`]), and gives back ([`Memory::into_inner`]).
//!
//! # Asynchronous programs
//! Posting never waits, so only events are asynchronous. [`EventDispatcher::arm`] and [`Cno::arm`]
//! make a file descriptor readable by the next event, for any reactor (tokio's `AsyncFd`; the
//! example `tokio_echo`); [`EventDispatcher::stream`] needs none. No future owns a request: if one
//! that awaits a completion is dropped, the request stays posted, its memory stays mapped, and its
//! event arrives with its cookie, which the program must still take. To end requests early,
//! disconnect ([`Endpoint::disconnect_abruptly`]) and take the events of their flush.
//!
//! One dispatcher has one descriptor, and one stream, which wakes one task. Any number of runtimes
//! may use dispatchers of their own, and endpoints and streams may move between them.
//!
//! A program must not close the descriptor by its number; it lives as long as the dispatcher or the
//! notification object. If it does so anyhow, as only unsafe code can, no wake-up arrives any more,
//! or at what the number names later.
//!
//! Decisions: `docs/decisions/019-unlocked-state-is-unsafe.md`,
//! `docs/decisions/081-memory-that-programs-own.md`,
//! `docs/decisions/082-events-for-asynchronous-programs.md`

mod adapter;
mod cno;
mod dispatcher;
mod endpoint;
mod given_back;
mod memory;
mod service;
mod shared;
#[cfg(feature = "stream")]
mod stream;
mod window;

// Re-exported so that programs need not name the crates.
pub use dat_engine::wait::{WaitCounters, WaitPolicy};
pub use dat_engine::{DataInOrder, DeviceInfo, Guid, PortInfo};
pub use memmap2::MmapMut;

// The values that the objects below these types report.
pub use crate::object::ListError;
pub use crate::object::counters::Counters;
pub use crate::object::ep::{EpInfo, EpStatus, RecvQuery};
pub use crate::object::evd::Stamped;
pub use crate::object::ia::{
    EpCreator, IaAttributes, IaInfo, IovOwnership, NamedAttribute, ProviderAttributes, PzSupport,
};
pub use crate::object::rmr::{RmrBinding, RmrInfo};
pub use crate::object::srq::{SrqInfo, SrqState};
pub use adapter::{Adapter, OpenOptions, ProtectionZone};
pub use cno::Cno;
pub use dispatcher::{EventDispatcher, Events, Waited};
pub use endpoint::{Endpoint, EndpointOptions};
pub use given_back::GivenBack;
pub use memory::{Memory, Message, OwnedBytes, Plain, RemoteSegment, Segment};
pub use service::{ConnectionRequest, ReservedServicePoint, ServicePoint};
pub use shared::SharedReceiveQueue;
#[cfg(feature = "stream")]
pub use stream::EventStream;
pub use window::Window;
