//! The table of a completion queue from QP number to queue pair.
//!
//! The fast path reads one [`Place`], half a cache line with what it needs of a queue
//! pair, at the low bits of the QP number: one line per queue pair, and one comparison,
//! for one queue pair or ten thousand. A device allocates QP numbers nearly in sequence,
//! so few queue pairs want the same place; if two do, the table grows, within a limit.
//! The rare queue pair that has no place is found by the slow path, in a map.
//!
//! **Threads.** The polling thread alone changes the table, and reads it without a lock.
//! Another thread that resets a queue pair invalidates the number in its place
//! ([`Places::retire`]), under the lock of the [`CqCommandQueue`](super::CqCommandQueue),
//! which the polling thread takes to add queue pairs and to move the places.
//!
//! Decision: `docs/decisions/002-completions-by-qp-number.md`

use core::marker::PhantomData;
use core::ptr::NonNull;
use std::collections::HashMap;
use std::sync::Arc;

use super::place::{Found, Place};
use super::record::Record;

/// The most places per queue pair that avoiding collisions may cost.
const MAX_SPARSENESS: usize = 16;

/// The places of a table: a power of two of them.
#[derive(Clone, Debug)]
pub(super) struct Places(Arc<[Place]>);

impl Places {
    fn new(count: usize) -> Self {
        debug_assert!(count.is_power_of_two());
        Self((0..count).map(|_| Place::free()).collect())
    }

    fn first(&self) -> NonNull<Place> {
        NonNull::from(&*self.0).cast()
    }

    /// Returns the only place that `qpn` can have.
    fn home(&self, qpn: u32) -> &Place {
        &self.0[qpn as usize & (self.0.len() - 1)]
    }

    /// Invalidates the number of a queue pair that is retired, if it has its place.
    pub(super) fn retire(&self, qpn: u32) {
        self.home(qpn).retire(qpn);
    }
}

#[derive(Debug)]
pub(super) struct Table {
    places: Places,
    /// What lookups read of `places`: the address of the first one, and their number minus
    /// one.
    first: NonNull<Place>,
    mask: usize,
    /// Every queue pair, live or retired, by its number.
    records: HashMap<u32, Arc<Record>>,
    /// The numbers of those without a place.
    displaced: Vec<u32>,
}

// SAFETY: `first` is the address of atomics, which any thread may use.
unsafe impl Send for Table {}

/// The part of the table that a lookup reads.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    first: NonNull<Place>,
    mask: usize,
    _table: PhantomData<&'a Table>,
}

impl<'a> View<'a> {
    /// Returns the live queue pair `qpn`, if it has its place.
    #[inline(always)]
    pub(super) fn find(self, qpn: u32) -> Option<Found<'a>> {
        // SAFETY: `mask` is the number of places minus one, and the table, which has the
        // places, is borrowed.
        let place = unsafe { self.first.add(qpn as usize & self.mask).as_ref() };
        // SAFETY: the table is borrowed by the polling thread: it is not `Sync`.
        unsafe { Found::new(place, qpn) }
    }
}

impl Table {
    pub(super) fn new() -> Self {
        let places = Places::new(8);
        Self {
            first: places.first(),
            mask: places.0.len() - 1,
            places,
            records: HashMap::new(),
            displaced: Vec::new(),
        }
    }

    /// Returns the part for lookups, which fits in registers.
    #[inline(always)]
    pub(super) fn view(&self) -> View<'_> {
        View {
            first: self.first,
            mask: self.mask,
            _table: PhantomData,
        }
    }

    /// Returns the places, for [`Places::retire`]. [`Self::insert`] can move them.
    pub(super) fn places(&self) -> &Places {
        &self.places
    }

    /// Returns the queue pair `qpn`, live or retired.
    pub(super) fn search(&self, qpn: u32) -> Option<&Arc<Record>> {
        self.records.get(&qpn)
    }

    /// Adds a queue pair. The table has none with its number.
    ///
    /// Nothing is retired meanwhile: neither the places nor the record.
    pub(super) fn insert(&mut self, record: Arc<Record>) {
        let qpn = record.qpn();
        let sparse = (self.len() + 1).saturating_mul(MAX_SPARSENESS);
        while !self.is_free(qpn) && 2 * self.places.0.len() <= sparse {
            self.grow();
        }
        self.seat(&record);
        self.records.insert(qpn, record);
    }

    /// Removes a record, if it is in the table, and returns it.
    pub(super) fn remove(&mut self, record: &Arc<Record>) -> Option<Arc<Record>> {
        let qpn = record.qpn();
        if !Arc::ptr_eq(self.records.get(&qpn)?, record) {
            return None;
        }
        let removed = self.records.remove(&qpn);
        if let Some(at) = self.displaced.iter().position(|&other| other == qpn) {
            self.displaced.swap_remove(at);
        } else {
            // SAFETY: this is the polling thread.
            unsafe { self.places.home(qpn).clear() };
            let heir = |other: &u32| core::ptr::eq(self.places.home(*other), self.places.home(qpn));
            if let Some(at) = self.displaced.iter().position(heir) {
                let heir = self.displaced.swap_remove(at);
                self.seat(&Arc::clone(&self.records[&heir]));
            }
        }
        removed
    }

    /// Returns the number of queue pairs.
    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    fn is_free(&self, qpn: u32) -> bool {
        // SAFETY: this is the polling thread: the table is not `Sync`.
        unsafe { self.places.home(qpn).is_free() }
    }

    /// Gives the queue pair its place, or notes that another one has it.
    fn seat(&mut self, record: &Record) {
        if self.is_free(record.qpn()) {
            // SAFETY: this is the polling thread; the table has the record until `remove`.
            unsafe { self.places.home(record.qpn()).give_to(record) };
        } else {
            self.displaced.push(record.qpn());
        }
    }

    /// Doubles the places.
    fn grow(&mut self) {
        let places = Places::new(2 * self.places.0.len());
        (self.first, self.mask) = (places.first(), places.0.len() - 1);
        self.places = places;
        self.displaced.clear();
        let records = core::mem::take(&mut self.records);
        records.values().for_each(|record| self.seat(record));
        self.records = records;
    }
}

#[cfg(test)]
mod tests;
