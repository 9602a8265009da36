//! Which receives were posted UNSIGNALLED: one bit each, in the order of the receive queue, which
//! is also the order of completion.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::OnceLock;

/// The bits of an endpoint whose receives are configured UNSIGNALLED; empty for any other.
#[derive(Debug, Default)]
pub(super) struct UnsignalledReceives {
    ring: OnceLock<Box<[AtomicBool]>>,
    /// How many receives were posted since the endpoint was created or reset. Written by the poster.
    posted: AtomicU32,
    /// How many of them have completed. Written by the poller of the receives.
    completed: AtomicU32,
}

impl UnsignalledReceives {
    /// Makes room for this many outstanding receives. Has an effect only once, before any is
    /// posted.
    pub(super) fn make_room(&self, receives: u32) {
        let places = receives.max(1).next_power_of_two();
        let _ = self
            .ring
            .set((0..places).map(|_| AtomicBool::new(false)).collect());
    }

    fn entry(&self, number: u32) -> Option<&AtomicBool> {
        let ring = self.ring.get()?;
        ring.get(number as usize & (ring.len() - 1))
    }

    /// Records whether the receive that is posted next is UNSIGNALLED. [`Self::posted`] follows
    /// once it is posted. Only for the poster.
    pub(super) fn posting(&self, unsignalled: bool) {
        if let Some(entry) = self.entry(self.posted.load(Ordering::Relaxed)) {
            entry.store(unsignalled, Ordering::Release);
        }
    }

    /// Counts a posted receive. Only for the poster.
    pub(super) fn posted(&self) {
        count(&self.posted);
    }

    /// Counts a completed receive. Returns whether it was posted UNSIGNALLED. Only for the poller
    /// of the receives.
    pub(super) fn next(&self) -> bool {
        self.entry(count(&self.completed))
            .is_some_and(|entry| entry.load(Ordering::Acquire))
    }

    /// Restarts counting when nothing is outstanding.
    pub(super) fn reset(&self) {
        self.posted.store(0, Ordering::Relaxed);
        self.completed.store(0, Ordering::Relaxed);
    }
}

/// Adds one to a counter that one thread at a time writes. Returns the number before.
fn count(counter: &AtomicU32) -> u32 {
    let number = counter.load(Ordering::Relaxed);
    counter.store(number.wrapping_add(1), Ordering::Relaxed);
    number
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receives_complete_with_their_bits_in_posting_order() {
        let unsignalled = UnsignalledReceives::default();
        unsignalled.posting(true);
        unsignalled.posted();
        assert!(!unsignalled.next(), "not configured");
        unsignalled.reset();
        unsignalled.make_room(3);
        for round in 0..5 {
            for bit in [true, false, round % 2 == 0] {
                // A post that fails leaves its bit to the next one.
                unsignalled.posting(!bit);
                unsignalled.posting(bit);
                unsignalled.posted();
            }
            assert_eq!(
                [unsignalled.next(), unsignalled.next(), unsignalled.next()],
                [true, false, round % 2 == 0]
            );
        }
    }
}
