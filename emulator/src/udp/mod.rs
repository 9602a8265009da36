//! The UDP wire: the devices exchange the packets of RoCE v2 with other hosts.
//!
//! ```text
//!  nic ──▶ port ─┬─ this host ──▶ attachment, ring            (as on the local wire)
//!                └─ others ─────▶ network ─▶ UDP, port 4791 ─▶ …
//!  nic ◀── port ◀── ring ◀── gateway ◀── UDP, port 4791 ◀── …
//! ```
//!
//! A port of a device has the addresses of a network interface ([`crate::fabric::interfaces`]). Every process
//! sends by sockets of its own ([`network`]). One process of an address receives for all, since an
//! address has one port 4791: the [`gateway`](crate::gateway), a thread of a launcher. It finds the process by
//! the number of the queue pair and puts the packet, with its IP header, into the ring to that
//! process, which checks and decodes it ([`receiver`]).
//!
//! Other hosts are numbered as they are first addressed ([`crate::fabric::hosts`]): the rest of the emulator
//! knows them by a port address that no device of this host has.
//!
//! Decision: `docs/decisions/084-one-launcher-receives.md`

pub(crate) mod network;
mod receiver;
pub(crate) mod socket;

use crate::fabric::iba::network::GRH;

/// Bytes before a packet of another host in the ring to its process: its IP header in the room
/// of a GRH, and its source port.
pub(crate) const PREFIX: usize = GRH + 2;
