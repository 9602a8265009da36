//! The entries of a shadow, indexed by free-running counters.

use mlx5_rings::RingSize;

/// A power of two of entries.
#[derive(Debug)]
pub(super) struct Places<T> {
    entries: Box<[T]>,
    size: RingSize,
}

impl<T: Default> Places<T> {
    /// Creates the fewest entries that hold `capacity` requests, at least one.
    pub(super) fn new(capacity: u32) -> Self {
        // Depths are far below 2^31, so the result does not overflow.
        let count = capacity.max(1).next_power_of_two();
        let size = RingSize::new(count).unwrap_or(RingSize::ONE);
        Self {
            entries: (0..size.count()).map(|_| T::default()).collect(),
            size,
        }
    }
}

impl<T> Places<T> {
    /// Returns the entry of request number `count`.
    #[inline(always)]
    pub(super) fn at(&self, count: u32) -> &T {
        let index = self.size.index(count);
        // SAFETY: the index is below the number of entries, by the mask of `size`.
        unsafe { self.entries.get_unchecked(index) }
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn every_request_of_the_capacity_has_an_entry_of_its_own() {
        for capacity in [0, 1, 2, 3, 5, 8] {
            let places = Places::<AtomicU32>::new(capacity);
            let start = u32::MAX - 2;
            let numbers = || (0..capacity).map(|at| start.wrapping_add(at));
            numbers().for_each(|number| places.at(number).store(number, Ordering::Relaxed));
            for number in numbers() {
                assert_eq!(places.at(number).load(Ordering::Relaxed), number);
            }
        }
        let _one = Places::<AtomicU32>::new(0).at(u32::MAX);
    }
}
