//! The connection manager over rdma_cm: the kernel carries the messages, finds the
//! route to the peer, and determines the attributes of the queue pairs.
//!
//! Ids are created without a queue pair. The queue pair is of the engine's own
//! device context; messages have its number, and its owner moves it
//! ([`crate::EndpointHandle::connect_by`]).
//!
//! | file | content |
//! | --- | --- |
//! | `address` | the devices that the host's addresses belong to |
//! | `payload` | private data, which the kernel pads |
//! | `port` | the port of a connection qualifier |
//! | `event` | events of rdma_cm, as values |
//! | `id` | librdmacm: channel and ids |
//! | `network` | what handles and the thread share; the thread's part |
//! | `listen` | the ids of a listener |
//! | `link` | the wire of a session; calls no librdmacm |
//! | `line` | the id of a link |
//!
//! On iWARP connecting and accepting move the queue pairs in the kernel, and a
//! queue pair has one connection ([`crate::Route::Iwarp`]).
//!
//! Differences from the manager over TCP:
//!
//! - The end of a process is a disconnect: the kernel sends the message for it.
//! - Private data is short, and its length may be lost (`payload`).
//! - Qualifiers that share a port cannot be distinguished (`port`).
//! - A connection may have to wait until the peer's kernel has forgotten the last
//!   connection of the same queue pair (`crate::cm::session`).
//!
//! Decision: `docs/decisions/035-rdma-cm-ids-without-qp.md`

mod address;
mod event;
mod id;
mod line;
mod link;
mod listen;
mod network;
mod payload;
mod port;

pub(super) use address::{device_at, no_address, own_addresses};
pub(super) use network::Rdma;
#[cfg(fuzzing)]
pub use payload::fuzz as private_data;
