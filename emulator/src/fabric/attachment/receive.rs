//! Receiving packets from the rings of the other processes.

use std::sync::atomic::Ordering;

use super::{Attachment, FabricError, bit};
use crate::fabric::directory::JoinError;
use crate::fabric::packet::Header;
use crate::fabric::ring::{Consumer, Popped};
use crate::fabric::segment::Slot;
use crate::fabric::wire::Generations;

/// Maximum number of records that one call of [`Attachment::receive`] discards,
/// so that a peer that keeps writing garbage cannot block the packets of
/// others.
const MAX_DISCARDED: u32 = 256;

impl Attachment {
    /// Returns whether there may be a packet.
    pub fn has_packets(&self) -> bool {
        let pending = self.segment.slot(self.slot).pending;
        self.sources | pending.load(Ordering::Relaxed) != 0
    }

    /// Takes the next packet, from the sources in round-robin order. Its
    /// payload replaces the contents of `payload`.
    pub fn receive(&mut self, payload: &mut Vec<u8>) -> Option<Header> {
        let pending = self.segment.slot(self.slot).pending;
        if pending.load(Ordering::Relaxed) != 0 {
            self.sources |= pending.swap(0, Ordering::SeqCst);
        }
        if self.is_lost {
            self.sources = 0;
        }
        if self.sources != 0 && !self.serving {
            self.serving = true;
            let serving = self.segment.slot(self.slot).serving;
            serving.store(1, Ordering::Release);
        }
        for _ in 0..MAX_DISCARDED {
            let from = self.next_source()?;
            let index = usize::from(from) - 1;
            if self.peers[index].incoming.is_none() {
                match self.segment.ring(from, self.slot) {
                    Ok(ring) => self.peers[index].incoming = Some(Consumer::new(ring)),
                    Err(source) => {
                        let cause = JoinError::file(self.directory.segment_path(), source);
                        self.error = Some(FabricError::Unreadable { slot: from, cause });
                    }
                }
            }
            let found = match &mut self.peers[index].incoming {
                Some(consumer) => consumer.pop(payload),
                None => Popped::Empty,
            };
            if found != Popped::Empty {
                self.round_robin = u32::from(from);
            }
            match found {
                Popped::Packet(header, generations)
                    if self.is_current(from, &header, generations) =>
                {
                    return Some(header);
                }
                Popped::Packet(..) => self.counters.stale += 1,
                Popped::Malformed => self.counters.malformed += 1,
                Popped::Empty => {
                    self.sources &= !bit(from);
                    let drained = self.peers[index].incoming.as_ref();
                    if drained.is_some_and(Consumer::take_room_request) {
                        self.signal(from);
                    }
                }
            }
        }
        // The caller calls again for the rest: see `PeerWaker::has_pending`.
        let pending = self.segment.slot(self.slot).pending;
        pending.fetch_or(self.sources, Ordering::SeqCst);
        None
    }

    /// Returns the first source at or after the round-robin position.
    fn next_source(&self) -> Option<Slot> {
        let rotated = self.sources.rotate_right(self.round_robin);
        let index = (rotated.trailing_zeros() + self.round_robin) % u64::BITS;
        (rotated != 0).then_some(index as Slot + 1)
    }

    fn is_current(&self, from: Slot, header: &Header, generations: Generations) -> bool {
        // The last packets of a process that has left are still delivered.
        let generation = self.segment.slot(from).generation.load(Ordering::Acquire) | 1;
        let slot_of = |qpn: u32| (qpn >> 16) as Slot;
        generations
            == (Generations {
                source: generation,
                destination: self.generation,
            })
            && slot_of(header.source_qpn.0) == from
            && slot_of(header.destination_qpn.0) == self.slot
    }
}
