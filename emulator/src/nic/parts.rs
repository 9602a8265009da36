//! Payload that becomes visible in parts: the last byte of a packet first, and the rest
//! with the next round of work.
//!
//! A device with relaxed ordering may write the bytes of a message in any order, so a
//! program must not conclude from the last byte that the others are there. It may
//! conclude so from a completion, and the device itself reads what it has written: the
//! rest is in memory before the next completion, before the device reads memory, and
//! before any command.

use super::core::Core;
use super::memory::{self, Fault};

/// Only these bytes of a page are written at once, so that memory which cannot be
/// written is found at once.
const PAGE: u64 = 4096;

/// The parts of the latest packet that are not in memory.
#[derive(Debug, Default)]
pub(super) struct Parts {
    waiting: Vec<Part>,
    /// Whether a round of work has passed since the packet.
    is_old: bool,
}

#[derive(Debug)]
struct Part {
    address: u64,
    bytes: Vec<u8>,
}

impl Core {
    /// Writes payload to host memory: all of it, or some bytes now and the rest later.
    /// The rest of an earlier packet must have been written ([`Self::place_rest`]).
    ///
    /// # Errors
    /// Returns an error if part of the memory is not writable.
    pub(super) fn place(&mut self, address: u64, bytes: &[u8]) -> Result<(), Fault> {
        let [rest @ .., last] = bytes else {
            return Ok(());
        };
        if !self.nasty.splits_payload() || rest.is_empty() {
            return memory::write(address, bytes);
        }
        memory::write(address + rest.len() as u64, &[*last])?;
        let mut at = 0;
        while let Some(byte) = rest.get(at) {
            let here = address + at as u64;
            memory::write(here, &[*byte])?;
            at += (PAGE - here % PAGE) as usize;
        }
        self.parts.is_old = false;
        self.parts.waiting.push(Part {
            address,
            bytes: rest.to_vec(),
        });
        Ok(())
    }

    /// Writes the rest of the latest packet's payload.
    #[inline]
    pub(super) fn place_rest(&mut self) {
        if self.parts.waiting.is_empty() {
            return;
        }
        for part in std::mem::take(&mut self.parts.waiting) {
            // Memory that a program has unmapped meanwhile gets no payload.
            let _unmapped = memory::write(part.address, &part.bytes);
        }
    }

    /// Writes the rest of payload that was placed before the previous round of work.
    /// Returns whether there is a rest.
    pub(super) fn place_old_rest(&mut self) -> bool {
        let has_rest = !self.parts.waiting.is_empty();
        if std::mem::replace(&mut self.parts.is_old, has_rest) {
            self.place_rest();
        }
        has_rest
    }
}

impl super::Nic {
    /// Writes the payload that is not in memory yet, before a command that may end the
    /// use of the memory.
    pub(crate) fn place_rest(&mut self) {
        self.core.place_rest();
    }
}
