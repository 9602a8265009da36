//! The connection manager: establishes and ends connections between endpoints.
//!
//! It exchanges the parameters of both endpoints ([`Parameters`], [`Peer`]) and the
//! application's private data, and reports events to a sink ([`ConnectionSink`]).
//! It does not change queue pairs: the sink moves its own queue pair when it gets
//! the event.
//!
//! ```text
//!  active side                                     passive side
//!  connect ──────────── request ──────────────────► ListenSink::request
//!                                                    queue pair to RTR, RTS
//!  Accepted ◄─────────── accept ─────────────────── Request::accept
//!   queue pair to RTR, RTS
//!   sink returns Ok ──── ready ───────────────────► Established
//!  disconnect ────────── disconnect ──────────────► Disconnected
//!  Disconnected ◄─────── reply ────────────────────
//!  fail ──────────────── failed (`socket` only) ──► Broken
//! ```
//!
//! There is one service thread per manager (`service`, `run`), and one state machine for
//! connections (`session`). The messages travel in two ways (`wire`): `socket` uses TCP,
//! and works with every InfiniBand and RoCE device. `rdma` uses the kernel's
//! connection manager, as other RDMA programs do, which also finds the route.

mod commands;
mod error;
mod gate;
mod listen;
mod local;
mod manager;
mod rdma;
mod run;
mod service;
mod session;
mod socket;
mod types;
mod wire;

/// What `fuzz/` calls; in such builds only.
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing {
    pub use super::rdma::private_data;
    pub use super::socket::frames;
}

pub use error::CmError;
pub use listen::ListenOn;
pub use local::{device_at, interface_address, own_address, why_no_address};
pub use manager::{Acceptance, Connection, DeviceWatch, Listener, Manager, Request};
pub use socket::port_of;
pub use types::{
    ConnectionEvent, ConnectionSink, DeviceSink, ListenSink, Local, ManagerKind, ManagerOptions,
    Parameters, Peer, Target,
};

/// The most bytes of private data in a request or an answer over TCP: see
/// [`Manager::max_private_data`].
pub const MAX_PRIVATE_DATA: usize = 512;
