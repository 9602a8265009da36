//! Packets between NICs: in one process, and over shared memory.
//!
//! ```text
//!  nic ──Transmit──▶ port ─┬─ own slot ──▶ queue ────────────────▶ port ──▶ nic
//!                          └─ others ────▶ attachment ─▶ ring ───▶ attachment of the peer
//!                                           wire.rs      segment    (checked decode)
//! ```
//!
//! All processes of one user that name the same fabric meet in a directory
//! ([`directory`]) and take a slot each. Nothing here blocks: a full ring
//! refuses, and its reader wakes the sender when there is room.

pub mod attachment;
pub mod bells;
pub mod directory;
pub mod name;
pub mod packet;
pub mod port;
mod ring;
mod segment;
mod wire;

#[cfg(test)]
mod intruder_tests;
#[cfg(test)]
mod place_tests;
#[cfg(test)]
pub(crate) mod tests;
