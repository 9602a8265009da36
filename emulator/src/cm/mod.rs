//! The communication manager of a host: it exchanges the messages that connect
//! queue pairs (IBA vol. 1, ch. 12) with the other processes of the fabric.
//!
//! ```text
//!  ucma        rdma_cm ids, addresses, ports, event queues
//!    │ connect, accept, reject, …      ▲ Event
//!    ▼                                 │
//!  Manager     states, retransmission, duplicates    (no clock, no I/O)
//!    │ Message to a process            ▲ Message from a process
//!    ▼                                 │
//!  wire        the management datagram in a packet (Operation::Management)
//! ```
//!
//! A connection between A (active) and B (passive):
//!
//! ```text
//!  A                         B
//!  connect ── Req ─────────▶ Event::Request
//!          ◀───────── Rep ── accept
//!  Event::Reply
//!  confirm ── Rtu ─────────▶ Event::Established
//!        … either side …
//!  disconnect ── Dreq ─────▶ Event::Disconnect
//!          ◀──────── Drep ── confirm_disconnect, or destroy
//! ```
//!
//! A lost message is sent again by the [`Manager`] that waits for the reply. If
//! the application takes long to decide, a repeated Req is answered by an Mra.
//! Every process has a manager of its own, where a host has one in its kernel;
//! a message names the process of its receiver, and a manager is notified when
//! a process has died.
//!
//! Decision: `docs/decisions/064-rdma-cm-between-processes.md`

mod datagram;
mod endpoint;
mod manager;
mod message;
mod receive;
mod timers;
mod wire;

#[cfg(fuzzing)]
#[path = "tests/fuzzing.rs"]
pub(crate) mod fuzzing;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use datagram::{MANAGEMENT_QKEY, MANAGEMENT_QPN, Origin, management};
pub(crate) use endpoint::{Attributes, QpState};
pub(crate) use manager::{Event, Manager, Peer};
pub(crate) use message::{
    Body, CommId, Ece, Message, Path, Rej, RejReason, Rep, Req, SidrRep, SidrReq, SidrStatus,
    data_of,
};
pub(crate) use timers::Timers;
pub(crate) use wire::decode;

pub(crate) use receive::answer_of_none;

use crate::fabric::packet::{Packet, Transmit};
use crate::nic::Progress;
use crate::nic::resources::Resource;
use crate::spec::{Nanos, PortSet};

/// Exchanges management packets with other processes. It runs with the NIC.
pub(crate) trait Agent: Send + Sync {
    /// Takes the packets that have arrived, handles expired timers, and sends
    /// what is due.
    fn work(&self, now: Nanos, arrived: &mut Vec<Packet>, tx: &mut dyn Transmit) -> Progress;
    /// Handles the failure of a device.
    fn device_failed(&self, device: u8);
    /// Handles a change of the ports that are down.
    fn ports_changed(&self, down: PortSet);
    /// Returns the ids that have a device.
    fn resources(&self) -> Vec<Resource>;
    /// Ends all connections, because the process exits. [`work`](Self::work) is
    /// called once more.
    fn stop(&self);
}
