//! Packets between NICs: within one process, and between processes over shared
//! memory.
//!
//! ```text
//!  nic ──Transmit──▶ port ─┬─ own slot ──▶ queue ────────────────▶ port ──▶ nic
//!                          └─ others ────▶ attachment ─▶ ring ───▶ attachment of the peer
//!                                           wire.rs      segment    (checked decode)
//! ```
//!
//! All processes of one user that use the same fabric name meet in a directory
//! ([`directory`]) and take one slot each. Nothing here blocks: a full ring
//! refuses a packet, and its reader wakes the sender when there is room.
//!
//! The processes share the ports of one host, too (`registry`), and the state of the
//! devices' ports ([`ports`]).
//!
//! Decision: `docs/decisions/044-one-host-many-processes.md`

pub mod attachment;
pub(crate) mod counters;
pub mod directory;
pub(crate) mod hosts;
pub mod iba;
pub mod interfaces;
pub mod name;
pub mod packet;
pub mod port;
pub mod ports;
pub(crate) mod registry;
pub(crate) mod reports;
mod ring;
mod segment;
pub mod slow_link;
pub mod waker;
mod wire;

#[cfg(test)]
mod corruption_tests;
#[cfg(test)]
mod directory_tests;
#[cfg(test)]
pub(crate) mod tests;
