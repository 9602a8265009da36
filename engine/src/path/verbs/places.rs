//! The places of a queue, which free-running counts walk through.

use mlx5_rings::RingSize;

/// A power of two of places.
#[derive(Debug)]
pub(super) struct Places<T> {
    entries: Box<[T]>,
    size: RingSize,
}

impl<T: Default> Places<T> {
    /// As few as hold `capacity`, one at least.
    pub(super) fn new(capacity: u32) -> Self {
        // Depths are far below 2^31.
        let count = capacity.max(1).next_power_of_two();
        let size = RingSize::new(count).unwrap_or(RingSize::ONE);
        Self {
            entries: (0..size.count()).map(|_| T::default()).collect(),
            size,
        }
    }
}

impl<T> Places<T> {
    /// The place of request number `count`.
    #[inline(always)]
    pub(super) fn at(&self, count: u32) -> &T {
        let index = self.size.index(count);
        // SAFETY: the index is below the count of `size`, and so many were made.
        unsafe { self.entries.get_unchecked(index) }
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn as_many_requests_as_asked_for_have_a_place_each() {
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
