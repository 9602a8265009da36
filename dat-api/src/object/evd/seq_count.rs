//! Detects, for a query, that the owner of the EVD has moved completions meanwhile.
//!
//! A receive counts for its endpoint until its event is handed out: first in the receive queue,
//! then, while the EVD has it staged, in the slot of the endpoint. Polling takes it from the first
//! count before staging adds it to the second. A query that reads both in between would miss it, so
//! the owner marks that time with an odd number here, as Linux's `seqcount_t` does.

use core::sync::atomic::{AtomicU32, Ordering, fence};

/// A number that is odd while the owner moves completions, and differs after it has moved some.
#[derive(Debug, Default)]
pub(super) struct SeqCount(AtomicU32);

/// The owner may move completions until this is dropped.
pub(super) struct Moving<'a> {
    count: &'a AtomicU32,
    /// The number before; odd if another `Moving` of the same owner lives.
    before: u32,
}

impl SeqCount {
    /// Called by the owner before it takes completions from the queues.
    #[inline(always)]
    pub(super) fn begin(&self) -> Moving<'_> {
        let before = self.0.load(Ordering::Relaxed);
        self.0.store(before | 1, Ordering::Relaxed);
        // The counts change after the number.
        fence(Ordering::Release);
        Moving {
            count: &self.0,
            before,
        }
    }

    /// Returns what `read` returns, or `None` if completions may have moved meanwhile.
    pub(super) fn read<R>(&self, read: impl FnOnce() -> R) -> Option<R> {
        let before = self.0.load(Ordering::Acquire);
        let result = read();
        // The counts are read before the number.
        fence(Ordering::Acquire);
        let is_same = self.0.load(Ordering::Relaxed) == before;
        (is_same && before & 1 == 0).then_some(result)
    }
}

impl Moving<'_> {
    /// Records that a completion was taken. Without this the number is at the end what it was
    /// before, so an owner that polls empty queues does not disturb queries for long.
    #[inline(always)]
    pub(super) fn has_moved(&self) {
        let now = self.count.load(Ordering::Relaxed);
        self.count.store(now.wrapping_add(2), Ordering::Relaxed);
    }
}

impl Drop for Moving<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.before & 1 != 0 {
            return;
        }
        let now = self.count.load(Ordering::Relaxed);
        let after = match now == self.before | 1 {
            true => self.before,
            false => now.wrapping_add(1),
        };
        // Release: the counts change before the number.
        self.count.store(after, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn a_read_sees_no_move_half_done() {
        let moves = if cfg!(miri) { 100 } else { 200_000 };
        let (queued, staged) = (AtomicU32::new(moves), AtomicU32::new(0));
        let (count, done) = (SeqCount::default(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 1..=moves {
                    drop(count.begin());
                    let moving = count.begin();
                    queued.store(moves - number, Ordering::Relaxed);
                    moving.has_moved();
                    staged.store(number, Ordering::Relaxed);
                }
                done.store(true, Ordering::Release);
            });
            let sum = || queued.load(Ordering::Relaxed) + staged.load(Ordering::Relaxed);
            while !done.load(Ordering::Acquire) {
                assert!(count.read(sum).is_none_or(|sum| sum == moves));
            }
            assert_eq!(count.read(sum), Some(moves));
        });
    }

    #[test]
    fn only_moves_change_the_number_also_within_others() {
        let count = SeqCount::default();
        let read = || count.read(|| count.0.load(Ordering::Relaxed));
        let first = read();
        assert!(first.is_some());
        {
            let _outer = count.begin();
            drop(count.begin());
            assert_eq!(read(), None);
        }
        assert_eq!(read(), first, "nothing has moved");
        {
            let _outer = count.begin();
            count.begin().has_moved();
            assert_eq!(read(), None, "the outer one goes on");
        }
        assert!(read().is_some() && read() != first);
    }
}
