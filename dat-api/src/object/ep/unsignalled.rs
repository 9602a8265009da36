//! Which receives were posted UNSIGNALLED: one bit each, in the order of the receive queue, which
//! is also the order of completion.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::OnceLock;

/// The bits of an endpoint whose receives are configured UNSIGNALLED; empty for any other.
#[derive(Debug, Default)]
pub(super) struct UnsignalledReceives {
    ring: OnceLock<Box<[AtomicBool]>>,
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

    /// Records that receive `number` is about to be posted.
    pub(super) fn posting(&self, number: u32, unsignalled: bool) {
        if let Some(entry) = self.entry(number) {
            entry.store(unsignalled, Ordering::Release);
        }
    }

    /// Counts a completed receive. Returns whether it was posted UNSIGNALLED. Only for the poller
    /// of the receives.
    pub(super) fn next(&self) -> bool {
        let number = self.completed.load(Ordering::Relaxed);
        self.completed
            .store(number.wrapping_add(1), Ordering::Relaxed);
        self.entry(number)
            .is_some_and(|entry| entry.load(Ordering::Acquire))
    }

    /// Restarts counting when nothing is outstanding.
    pub(super) fn reset(&self) {
        self.completed.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receives_complete_with_their_bits_in_posting_order() {
        let unsignalled = UnsignalledReceives::default();
        unsignalled.posting(0, true);
        assert!(!unsignalled.next(), "not configured");
        unsignalled.reset();
        unsignalled.make_room(3);
        let mut number = 0;
        for round in 0..5 {
            for bit in [true, false, round % 2 == 0] {
                unsignalled.posting(number, bit);
                number += 1;
            }
            assert_eq!(
                [unsignalled.next(), unsignalled.next(), unsignalled.next()],
                [true, false, round % 2 == 0]
            );
        }
    }
}
