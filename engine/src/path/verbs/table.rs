//! Tags: the `wr_id`s that libibverbs gets; and the table of a completion queue from the name in
//! a tag to the record of a queue pair.
//!
//! ```text
//!  63 62 | 61            32 | 31           0
//!  side  | name             | slot
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::device::Device;
use super::record::Record;

/// The queue that a request was posted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// The send queue of a queue pair.
    Send,
    /// The receive queue of a queue pair.
    Recv,
    /// A shared receive queue.
    Shared,
}

/// The name of a queue pair between two resets, at one completion queue; or the name of a shared
/// receive queue. 30 bits: the index of an entry of the table, and the number of earlier uses of
/// that entry.
pub(super) type Name = u32;

/// The bits of a name.
pub(super) const NAMES: Name = (1 << 30) - 1;
const INDEX_BITS: u32 = 20;
const INDICES: Name = (1 << INDEX_BITS) - 1;

/// A tag in its parts; the layout is at the top of this file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tag {
    pub(super) side: Side,
    pub(super) name: Name,
    /// For a send or a receive, the number of those posted before it; for a shared receive, its
    /// index.
    pub(super) slot: u32,
}

impl Tag {
    pub(super) fn to_bits(self) -> u64 {
        (self.side as u64) << 62 | u64::from(self.name) << 32 | u64::from(self.slot)
    }

    /// Returns the parts of a tag; `None` if the bits are no tag of the engine.
    pub(super) fn from_bits(bits: u64) -> Option<Self> {
        let side = [Side::Send, Side::Recv, Side::Shared];
        Some(Self {
            side: *side.get((bits >> 62) as usize)?,
            name: (bits >> 32) as u32 & NAMES,
            slot: bits as u32,
        })
    }
}

pub(super) struct Table<D: Device> {
    /// The names, and the queue pairs that have them now.
    places: Vec<(Name, Option<Arc<Record<D>>>)>,
    /// Free entries, the longest free first, so that names are not reused soon.
    free: VecDeque<u32>,
    /// The queue pairs with shared receives, whose tags do not name them, by QP number.
    numbers: BTreeMap<u32, Arc<Record<D>>>,
}

impl<D: Device> Table<D> {
    pub(super) fn new() -> Self {
        Self {
            places: Vec::new(),
            free: VecDeque::new(),
            numbers: BTreeMap::new(),
        }
    }

    /// Adds a queue pair, whose number is not in the table. `None` if there are more than 2^20.
    pub(super) fn insert(&mut self, record: &Arc<Record<D>>) -> Option<Name> {
        let index = match self.free.pop_front() {
            Some(index) => index,
            None => {
                let index = u32::try_from(self.places.len()).ok()?;
                if index > INDICES {
                    return None;
                }
                self.places.push((index, None));
                index
            }
        };
        self.set(index, Some(record));
        Some(self.places[index as usize].0)
    }

    /// Returns the queue pair with that name, if there is one.
    pub(super) fn find(&self, name: Name) -> Option<&Arc<Record<D>>> {
        match self.places.get((name & INDICES) as usize)? {
            (known, record) if *known == name => record.as_ref(),
            _ => None,
        }
    }

    /// Returns the queue pair with that number, if there is one and it uses shared receives.
    pub(super) fn find_number(&self, qpn: u32) -> Option<&Arc<Record<D>>> {
        self.numbers.get(&qpn)
    }

    /// Replaces the record of a queue pair, or removes the queue pair. Returns its new name.
    pub(super) fn replace(&mut self, name: Name, record: Option<&Arc<Record<D>>>) -> Name {
        let index = name & INDICES;
        if record.is_none() {
            self.free.push_back(index);
        }
        let place = &mut self.places[index as usize];
        place.0 = place.0.wrapping_add(1 << INDEX_BITS) & NAMES;
        let next = place.0;
        self.set(index, record);
        next
    }

    fn set(&mut self, index: u32, record: Option<&Arc<Record<D>>>) {
        let before = core::mem::replace(&mut self.places[index as usize].1, record.cloned());
        if let Some(before) = before.filter(|before| before.shared.is_some()) {
            self.numbers.remove(&before.qpn);
        }
        if let Some(record) = record.filter(|record| record.shared.is_some()) {
            self.numbers.insert(record.qpn, Arc::clone(record));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn tags_are_decoded_as_they_were_encoded(side in 0..3u8, name in 0..=NAMES, slot in any::<u32>()) {
            let side = [Side::Send, Side::Recv, Side::Shared][usize::from(side)];
            let tag = Tag { side, name, slot };
            prop_assert_eq!(Tag::from_bits(tag.to_bits()), Some(tag));
        }

        #[test]
        fn different_tags_have_different_bits(a in any::<u64>(), b in any::<u64>()) {
            match (Tag::from_bits(a), Tag::from_bits(b)) {
                (Some(x), Some(y)) => prop_assert_eq!(x == y, a == b),
                (None, _) => prop_assert_eq!(a >> 62, 3),
                (_, None) => prop_assert_eq!(b >> 62, 3),
            }
        }
    }
}
