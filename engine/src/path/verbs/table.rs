//! The table of a completion queue from the name in a tag to the record of a queue
//! pair; and from the QP number, for shared receives, whose tag does not name a
//! queue pair.

use core::hash::{BuildHasherDefault, Hasher};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::device::Device;
use super::record::{Receives, Record};
use super::tag::Name;

/// A name is the index of an entry, and the number of earlier uses of that entry.
const INDEX_BITS: u32 = 20;
const INDEX_MASK: u32 = (1 << INDEX_BITS) - 1;

pub(super) struct Table<D: Device> {
    places: Vec<Place<D>>,
    /// Free entries, the longest free first, so that names are not reused soon.
    free: VecDeque<u32>,
    /// The indices of the queue pairs with shared receives, by QP number.
    numbers: HashMap<u32, u32, BuildHasherDefault<NumberHasher>>,
}

struct Place<D: Device> {
    name: Name,
    record: Option<Arc<Record<D>>>,
}

impl<D: Device> Table<D> {
    pub(super) fn new() -> Self {
        Self {
            places: Vec::new(),
            free: VecDeque::new(),
            numbers: HashMap::default(),
        }
    }

    /// Adds a queue pair, whose number is not in the table. `None` if there are
    /// more than 2^20.
    pub(super) fn insert(&mut self, record: Arc<Record<D>>) -> Option<Name> {
        let index = match self.free.pop_front() {
            Some(index) => index,
            None => {
                let index = u32::try_from(self.places.len()).ok()?;
                if index > INDEX_MASK {
                    return None;
                }
                self.places.push(Place {
                    name: Name::new(index),
                    record: None,
                });
                index
            }
        };
        if let Receives::Shared(_) = record.receives {
            self.numbers.insert(record.qpn, index);
        }
        let place = &mut self.places[index as usize];
        place.record = Some(record);
        Some(place.name)
    }

    /// Returns the queue pair with that name, if there is one.
    #[inline]
    pub(super) fn find(&self, name: Name) -> Option<&Arc<Record<D>>> {
        let place = self.places.get((name.get() & INDEX_MASK) as usize)?;
        if place.name != name {
            return None;
        }
        place.record.as_ref()
    }

    /// Returns the queue pair with that number, if there is one and it uses shared
    /// receives.
    #[inline]
    pub(super) fn find_number(&self, qpn: u32) -> Option<&Arc<Record<D>>> {
        let index = *self.numbers.get(&qpn)?;
        self.places.get(index as usize)?.record.as_ref()
    }

    /// Replaces the record of a queue pair. Returns its new name.
    pub(super) fn replace(&mut self, name: Name, record: Arc<Record<D>>) -> Name {
        let place = &mut self.places[(name.get() & INDEX_MASK) as usize];
        place.name = successor(place.name);
        place.record = Some(record);
        place.name
    }

    /// Removes a queue pair.
    pub(super) fn remove(&mut self, name: Name) {
        let index = name.get() & INDEX_MASK;
        let place = &mut self.places[index as usize];
        let Some(record) = place.record.take() else {
            return;
        };
        place.name = successor(place.name);
        self.free.push_back(index);
        if let Receives::Shared(_) = record.receives {
            self.numbers.remove(&record.qpn);
        }
    }

    /// Returns the number of queue pairs.
    pub(super) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }
}

/// Returns the next name of the same entry.
fn successor(name: Name) -> Name {
    Name::new(name.get().wrapping_add(1 << INDEX_BITS))
}

/// A hasher for QP numbers, which a device allocates nearly in sequence.
#[derive(Default)]
pub(super) struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u32(u32::from(byte));
        }
    }

    #[inline]
    fn write_u32(&mut self, number: u32) {
        // The multiplier is 2^64 divided by the golden ratio: it moves all bits up.
        self.0 = (self.0 ^ u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}
