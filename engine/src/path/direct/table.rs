//! The table of a completion queue from QP number to record.
//!
//! Open addressing by the low bits of the number. A device allocates QP numbers
//! nearly in sequence, so a table with as many places as queue pairs has few
//! collisions; at a collision the table grows, within a limit. A lookup that hits
//! is one load and one comparison, for one queue pair or ten thousand. So there is
//! no cache of the last queue pair: it would slow programs with many queue pairs.
//! The rare queue pair that is not in its first place is found by a search in an
//! outlined function.
//!
//! Decision: `docs/decisions/002-completions-by-qp-number.md`

use std::sync::Arc;

use super::record::Record;

/// The most places per queue pair that avoiding collisions may cost.
const MAX_SPARSENESS: usize = 16;

#[derive(Debug)]
pub(super) struct Table {
    /// A power of two of places. Free places hold `unused`, so that a lookup needs
    /// one comparison only.
    places: Box<[Arc<Record>]>,
    mask: usize,
    unused: Arc<Record>,
    used: usize,
}

/// The part of the table that a lookup reads.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    places: &'a [Arc<Record>],
    mask: usize,
}

impl<'a> View<'a> {
    /// Returns the live queue pair `qpn`, if it is in its first place.
    #[inline(always)]
    pub(super) fn find(self, qpn: u32) -> Option<&'a Record> {
        // SAFETY: `mask` is the number of places minus one.
        let record = unsafe { self.places.get_unchecked(qpn as usize & self.mask) };
        if record.is(qpn) { Some(record) } else { None }
    }
}

impl Table {
    pub(super) fn new() -> Self {
        let unused = Arc::new(Record::unused());
        Self {
            places: empty(8, &unused),
            mask: 7,
            unused,
            used: 0,
        }
    }

    /// Returns the part for lookups, which fits in registers.
    #[inline(always)]
    pub(super) fn view(&self) -> View<'_> {
        View {
            places: &self.places,
            mask: self.mask,
        }
    }

    /// Returns the queue pair `qpn`, live or retired, in any place.
    pub(super) fn search(&self, qpn: u32) -> Option<&Arc<Record>> {
        self.chain(qpn)
            .map(|at| &self.places[at])
            .find(|record| record.qpn() == qpn)
    }

    /// Adds a queue pair. The table has none with its number.
    pub(super) fn insert(&mut self, record: Arc<Record>) {
        self.used += 1;
        if 2 * self.used > self.places.len() {
            self.rehash(2 * self.places.len());
        }
        let sparse = self.used.saturating_mul(MAX_SPARSENESS);
        while !self.is_free(record.qpn() as usize & self.mask) && 2 * self.places.len() <= sparse {
            self.rehash(2 * self.places.len());
        }
        self.put(record);
    }

    /// Removes a record, if it is in the table.
    pub(super) fn remove(&mut self, record: &Arc<Record>) {
        let found = self
            .chain(record.qpn())
            .find(|&at| Arc::ptr_eq(&self.places[at], record));
        let Some(mut hole) = found else { return };
        self.places[hole] = Arc::clone(&self.unused);
        self.used -= 1;
        // Records that were displaced past the freed place move back towards their
        // first place.
        let mut at = hole;
        loop {
            at = (at + 1) & self.mask;
            if self.is_free(at) {
                return;
            }
            let home = self.places[at].qpn() as usize & self.mask;
            if at.wrapping_sub(home) & self.mask >= at.wrapping_sub(hole) & self.mask {
                self.places.swap(at, hole);
                hole = at;
            }
        }
    }

    /// Returns the number of queue pairs.
    pub(super) fn len(&self) -> usize {
        self.used
    }

    fn is_free(&self, at: usize) -> bool {
        Arc::ptr_eq(&self.places[at], &self.unused)
    }

    /// Returns the places where `qpn` can be, up to the first free one.
    fn chain(&self, qpn: u32) -> impl Iterator<Item = usize> {
        (0..self.places.len())
            .map(move |ahead| (qpn as usize).wrapping_add(ahead) & self.mask)
            .take_while(|&at| !self.is_free(at))
    }

    /// Stores the record in the first free place of its chain. There is one: the
    /// table is at most half full.
    fn put(&mut self, record: Arc<Record>) {
        let home = record.qpn() as usize & self.mask;
        let at = home + self.chain(record.qpn()).count();
        self.places[at & self.mask] = record;
    }

    fn rehash(&mut self, len: usize) {
        let old = core::mem::replace(&mut self.places, empty(len, &self.unused));
        self.mask = len - 1;
        for record in old {
            if !Arc::ptr_eq(&record, &self.unused) {
                self.put(record);
            }
        }
    }
}

fn empty(len: usize, unused: &Arc<Record>) -> Box<[Arc<Record>]> {
    debug_assert!(len.is_power_of_two());
    (0..len).map(|_| Arc::clone(unused)).collect()
}
