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
    places: Box<[Option<Arc<Record>>]>,
    used: usize,
}

/// `qpn` as a place in a table of `len` places, a power of two.
fn place(qpn: u32, len: usize) -> usize {
    qpn as usize & (len - 1)
}

impl Table {
    pub(super) fn new() -> Self {
        Self {
            places: empty(8),
            used: 0,
        }
    }

    /// The living queue pair `qpn`, if it is where it belongs.
    #[inline(always)]
    pub(super) fn find(&self, qpn: u32) -> Option<&Record> {
        // SAFETY: masked to the length, a power of two and never 0.
        let place = unsafe { self.places.get_unchecked(place(qpn, self.places.len())) };
        match place {
            Some(record) if record.is(qpn) => Some(record),
            _ => None,
        }
    }

    /// The queue pair `qpn`, living or not, wherever it is.
    #[cold]
    pub(super) fn search(&self, qpn: u32) -> Option<&Arc<Record>> {
        let start = place(qpn, self.places.len());
        (0..self.places.len())
            .map_while(|ahead| {
                self.places[place((start + ahead) as u32, self.places.len())].as_ref()
            })
            .find(|record| record.qpn() == qpn)
    }

    /// Adds a queue pair. There is none of its number in the table.
    pub(super) fn insert(&mut self, record: Arc<Record>) {
        self.used += 1;
        if 2 * self.used > self.places.len() {
            self.rehash(2 * self.places.len());
        }
        let sparse = self.used.saturating_mul(MAX_SPARSENESS);
        while self.places[place(record.qpn(), self.places.len())].is_some()
            && 2 * self.places.len() <= sparse
        {
            self.rehash(2 * self.places.len());
        }
        put(&mut self.places, record);
    }

    /// Takes a record out, if it is there.
    pub(super) fn remove(&mut self, record: &Arc<Record>) {
        let start = place(record.qpn(), self.places.len());
        let len = self.places.len();
        let found = (0..len)
            .map(|ahead| place((start + ahead) as u32, len))
            .take_while(|&at| self.places[at].is_some())
            .find(|&at| {
                self.places[at]
                    .as_ref()
                    .is_some_and(|there| Arc::ptr_eq(there, record))
            });
        let Some(mut hole) = found else { return };
        self.places[hole] = None;
        self.used -= 1;
        // Whoever stood behind it for want of a better place moves up.
        let mut at = hole;
        loop {
            at = place((at + 1) as u32, len);
            let Some(there) = self.places[at].as_ref() else {
                return;
            };
            let home = place(there.qpn(), len);
            let behind_home = (at + len - home) % len;
            let behind_hole = (at + len - hole) % len;
            if behind_home >= behind_hole {
                self.places.swap(at, hole);
                hole = at;
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        self.used
    }

    fn rehash(&mut self, len: usize) {
        let old = core::mem::replace(&mut self.places, empty(len));
        for record in old.into_iter().flatten() {
            put(&mut self.places, record);
        }
    }
}

fn empty(len: usize) -> Box<[Option<Arc<Record>>]> {
    debug_assert!(len.is_power_of_two());
    (0..len).map(|_| None).collect()
}

/// Into the first free place from home on. There is one.
fn put(places: &mut [Option<Arc<Record>>], record: Arc<Record>) {
    let home = place(record.qpn(), places.len());
    for ahead in 0..places.len() {
        let at = place((home + ahead) as u32, places.len());
        if places[at].is_none() {
            places[at] = Some(record);
            return;
        }
    }
    unreachable!("the table is kept at most half full");
}
