//! From queue pair number to record, for one completion queue.
//!
//! Open addressing by the low bits of the number. A device hands numbers out
//! nearly in sequence, so a table with as many places as queue pairs has hardly
//! a collision; when there is one, the table grows, within reason. A look-up
//! that hits is one load and one comparison, for one queue pair or ten
//! thousand; hence no cache of the last one, which would cost the many what it
//! saves the few. The rare queue pair that is not where it belongs is found by
//! a search, out of line.

use std::sync::Arc;

use super::record::Record;

/// The most places per queue pair that avoiding collisions may cost.
const MAX_SPARSENESS: usize = 16;

#[derive(Debug)]
pub(super) struct Table {
    /// As many as a power of two. Free places hold `nobody`, so that a look-up
    /// has one comparison to make.
    places: Box<[Arc<Record>]>,
    mask: usize,
    nobody: Arc<Record>,
    used: usize,
}

/// What a look-up takes.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    places: &'a [Arc<Record>],
    mask: usize,
}

impl<'a> View<'a> {
    /// The living queue pair `qpn`, if it is where it belongs.
    #[inline(always)]
    pub(super) fn find(self, qpn: u32) -> Option<&'a Record> {
        // SAFETY: `mask` is the number of places less one.
        let record = unsafe { self.places.get_unchecked(qpn as usize & self.mask) };
        if record.is(qpn) { Some(record) } else { None }
    }
}

impl Table {
    pub(super) fn new() -> Self {
        let nobody = Arc::new(Record::nobody());
        Self {
            places: empty(8, &nobody),
            mask: 7,
            nobody,
            used: 0,
        }
    }

    /// The look-up alone, for registers.
    #[inline(always)]
    pub(super) fn view(&self) -> View<'_> {
        View {
            places: &self.places,
            mask: self.mask,
        }
    }

    /// The queue pair `qpn`, living or not, wherever it is.
    pub(super) fn search(&self, qpn: u32) -> Option<&Arc<Record>> {
        self.chain(qpn)
            .map(|at| &self.places[at])
            .find(|record| record.qpn() == qpn)
    }

    /// Adds a queue pair. There is none of its number in the table.
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

    /// Takes a record out, if it is there.
    pub(super) fn remove(&mut self, record: &Arc<Record>) {
        let found = self
            .chain(record.qpn())
            .find(|&at| Arc::ptr_eq(&self.places[at], record));
        let Some(mut hole) = found else { return };
        self.places[hole] = Arc::clone(&self.nobody);
        self.used -= 1;
        // Whoever stood behind it for want of a better place moves up.
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

    /// How many queue pairs there are.
    pub(super) fn len(&self) -> usize {
        self.used
    }

    fn is_free(&self, at: usize) -> bool {
        Arc::ptr_eq(&self.places[at], &self.nobody)
    }

    /// The places where `qpn` can be, up to the first that is free.
    fn chain(&self, qpn: u32) -> impl Iterator<Item = usize> {
        (0..self.places.len())
            .map(move |ahead| (qpn as usize).wrapping_add(ahead) & self.mask)
            .take_while(|&at| !self.is_free(at))
    }

    /// Into the first free place from home on. There is one: the table is kept
    /// at most half full.
    fn put(&mut self, record: Arc<Record>) {
        let home = record.qpn() as usize & self.mask;
        let at = home + self.chain(record.qpn()).count();
        self.places[at & self.mask] = record;
    }

    fn rehash(&mut self, len: usize) {
        let old = core::mem::replace(&mut self.places, empty(len, &self.nobody));
        self.mask = len - 1;
        for record in old {
            if !Arc::ptr_eq(&record, &self.nobody) {
                self.put(record);
            }
        }
    }
}

fn empty(len: usize, nobody: &Arc<Record>) -> Box<[Arc<Record>]> {
    debug_assert!(len.is_power_of_two());
    (0..len).map(|_| Arc::clone(nobody)).collect()
}
