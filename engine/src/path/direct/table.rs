//! The table of a completion queue from QP number to queue pair.
//!
//! The fast path reads one [`HotQp`], half a cache line with what it needs of a queue
//! pair, at the low bits of the QP number: one line per queue pair, and one comparison,
//! for one queue pair or ten thousand. A device allocates QP numbers nearly in sequence,
//! so few queue pairs want the same place; if two do, the table grows, within a limit.
//! The rare queue pair that has no place is found by the slow path, in a map.
//!
//! **Threads.** The polling thread alone changes the table, and reads it without a lock.
//! Another thread that resets a queue pair invalidates the number in its place
//! ([`HotQps::retire`]), under the lock of the [`CqCommandQueue`](super::CqCommandQueue),
//! which the polling thread takes to add queue pairs and to move the places.
//!
//! Decisions: `docs/decisions/002-completions-by-qp-number.md`,
//! `docs/decisions/074-look-ahead.md`

use std::collections::HashMap;
use std::sync::Arc;

use super::hot_qp::{HotQps, Lookup};
use super::record::Record;
use mlx5_rings::complete::Group;
use mlx5_rings::mmio::prefetch;

/// The places of a table that is large: 8 KiB, or fewer for Miri, which interprets.
pub(super) const LARGE: usize = if cfg!(miri) { 16 } else { 256 };
/// The most places per queue pair that avoiding collisions may cost.
const MAX_SPARSENESS: usize = 16;

#[derive(Debug)]
pub(super) struct Table {
    /// What lookups read of the places.
    pub(super) lookup: Lookup,
    /// Boxed, so that a poller is no larger than it has to be.
    whole: Box<Whole>,
}

#[derive(Debug)]
struct Whole {
    places: HotQps,
    /// Every queue pair, live or retired, by its number.
    records: HashMap<u32, Arc<Record>>,
    /// The numbers of those without a place.
    displaced: Vec<u32>,
}

impl Table {
    pub(super) fn new() -> Self {
        let places = HotQps::new(8);
        Self {
            lookup: places.lookup(),
            whole: Box::new(Whole {
                places,
                records: HashMap::new(),
                displaced: Vec::new(),
            }),
        }
    }

    /// Prefetches what the completions of a group need of their queue pairs.
    #[inline(always)]
    pub(super) fn look_ahead(&self, group: Group) {
        let lookup = self.lookup;
        // All places first, so that their cache misses overlap.
        for slot in group {
            prefetch(lookup.place(slot.request_qpn().qpn()).as_ptr().cast());
        }
        for slot in group {
            // SAFETY: this is the polling thread, and the table is borrowed.
            if let Some(found) = unsafe { lookup.find(slot.request_qpn()) } {
                found.prefetch(slot.own_op().opcode().is_responder());
            }
        }
    }

    /// Returns whether the places are too many to be always in the first-level cache, so that
    /// looking ahead pays.
    pub(super) fn is_large(&self) -> bool {
        self.whole.places.count() >= LARGE
    }

    /// Returns the places, for [`HotQps::retire`]. [`Self::insert`] can move them.
    pub(super) fn places(&self) -> &HotQps {
        &self.whole.places
    }

    /// Returns the queue pair `qpn`, live or retired.
    pub(super) fn search(&self, qpn: u32) -> Option<&Arc<Record>> {
        self.whole.records.get(&qpn)
    }

    /// Adds a queue pair. The table has none with its number.
    ///
    /// Nothing is retired meanwhile: neither the places nor the record.
    pub(super) fn insert(&mut self, record: Arc<Record>) {
        let qpn = record.qpn();
        let sparse = (self.len() + 1).saturating_mul(MAX_SPARSENESS);
        while !self.is_free(qpn) && 2 * self.whole.places.count() <= sparse {
            self.grow();
        }
        self.seat(&record);
        self.whole.records.insert(qpn, record);
    }

    /// Removes a record, if it is in the table, and returns it.
    pub(super) fn remove(&mut self, record: &Arc<Record>) -> Option<Arc<Record>> {
        let qpn = record.qpn();
        if !Arc::ptr_eq(self.whole.records.get(&qpn)?, record) {
            return None;
        }
        let removed = self.whole.records.remove(&qpn);
        if let Some(at) = self.whole.displaced.iter().position(|&other| other == qpn) {
            self.whole.displaced.swap_remove(at);
        } else {
            // SAFETY: this is the polling thread.
            unsafe { self.whole.places.home(qpn).clear() };
            let heir = |other: &u32| {
                core::ptr::eq(self.whole.places.home(*other), self.whole.places.home(qpn))
            };
            if let Some(at) = self.whole.displaced.iter().position(heir) {
                let heir = self.whole.displaced.swap_remove(at);
                self.seat(&Arc::clone(&self.whole.records[&heir]));
            }
        }
        removed
    }

    /// Returns the number of queue pairs.
    pub(super) fn len(&self) -> usize {
        self.whole.records.len()
    }

    fn is_free(&self, qpn: u32) -> bool {
        // SAFETY: this is the polling thread: the table is not `Sync`.
        unsafe { self.whole.places.home(qpn).is_free() }
    }

    /// Gives the queue pair its place, or notes that another one has it.
    fn seat(&mut self, record: &Record) {
        if self.is_free(record.qpn()) {
            // SAFETY: this is the polling thread; the table has the record until `remove`.
            unsafe { self.whole.places.home(record.qpn()).give_to(record) };
        } else {
            self.whole.displaced.push(record.qpn());
        }
    }

    /// Doubles the places.
    fn grow(&mut self) {
        let places = HotQps::new(2 * self.whole.places.count());
        self.lookup = places.lookup();
        self.whole.places = places;
        self.whole.displaced.clear();
        let records = core::mem::take(&mut self.whole.records);
        records.values().for_each(|record| self.seat(record));
        self.whole.records = records;
    }
}

#[cfg(test)]
mod tests;
