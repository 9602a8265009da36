//! The connection manager: how two endpoints find each other and agree.
//!
//! It carries what the two sides must know of each other ([`Parameters`],
//! [`Peer`]) and the application's private data, and tells a sink what happens.
//! It touches no queue pair: the sink moves its own when it is told.
//!
//! ```text
//!  active side                                     passive side
//!  connect ──────────── request ──────────────────► ListenSink::request
//!                                                    queue pair to RTR, RTS
//!  Accepted ◄─────────── accept ─────────────────── Request::accept
//!   queue pair to RTR, RTS
//!   sink answers Ok ──── ready ───────────────────► Established
//!  disconnect ────────── goodbye ─────────────────► Disconnected
//!  Disconnected ◄─────── its answer ───────────────
//!  fail ──────────────── failed (`socket` only) ──► Broken
//! ```
//!
//! The types here say nothing of the transport of these messages. `socket`
//! uses TCP, and so works wherever verbs do; `rdma` has the kernel carry them,
//! as other programs of RDMA do, and find the way as well.

mod error;
mod gate;
mod listen;
mod local;
mod manager;
mod port;
mod post;
mod rdma;
mod socket;
mod types;

pub use error::CmError;
pub use listen::ListenOn;
pub use local::{device_at, interface_address, own_address, why_no_address};
pub use manager::{Connection, DeviceWatch, Listener, Manager, Request};
pub use port::port_of;
pub use types::{
    ConnectionEvent, ConnectionSink, DeviceSink, ListenSink, Local, ManagerKind, ManagerOptions,
    Parameters, Peer, Target,
};

/// Most bytes of private data that a request or an answer carries over TCP:
/// see [`Manager::max_private_data`].
pub const MAX_PRIVATE_DATA: usize = 512;
