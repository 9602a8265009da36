//! The connection manager by rdma_cm: the kernel carries the messages, finds
//! the way to the peer, and says what the queue pairs are to be set to.
//!
//! Ids are made without a queue pair; ours, of our own device context, is
//! named by its number and moved by whoever owns it
//! ([`crate::EndpointHandle::connect_by`]).
//!
//! | file | what |
//! | --- | --- |
//! | `address` | whose the addresses of this host are |
//! | `payload` | private data, which the kernel pads |
//! | `port` | which port a qualifier means |
//! | `event` | what the kernel tells, as values |
//! | `id` | librdmacm: channel and ids |
//! | `session` | one connection's states; touches no id |
//! | `wire` | a session's id |
//! | `handle` | what the application holds |
//! | `service` | what handles and the thread share; start and end |
//! | `run` | the thread: events, commands, deadlines |
//!
//! On iWARP connecting and accepting move the queue pairs in the kernel, and a
//! queue pair has one connection ([`crate::Route::Iwarp`]).
//!
//! What differs from the manager over TCP:
//!
//! * A process that dies is a disconnect: the kernel says goodbye for it.
//! * Private data is short, and its length may be lost (`payload`).
//! * Qualifiers that share a port cannot be told apart (`port`).
//! * A connection may have to wait until the kernel of the other side has
//!   forgotten the last one of the same queue pair (`session`).

mod address;
mod event;
mod handle;
mod id;
mod payload;
mod port;
mod run;
mod service;
mod session;
mod wire;

pub(super) use address::{device_at, no_address, own_addresses};
pub(super) use handle::{Connection, DeviceWatch, Listener, Request};
pub(super) use payload::max_private_data;
pub(super) use service::Service;
