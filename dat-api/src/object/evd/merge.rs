//! The order of completions that come from several queues.
//!
//! Decision: `docs/decisions/023-one-cq-per-evd.md`

use dat_engine::{Arrival, Completion};

use super::Queue;

/// Takes completions from several queues.
///
/// An EVD has one completion queue as long as that can hold what its endpoints have outstanding,
/// and hands out completions in the order of that queue, which is the order of arrival. With
/// several queues, the completion with the earliest time stamp comes first. That is a best effort:
///
/// - an error completion has no time stamp, and comes directly after the completion before it in
///   its own queue;
/// - time stamps are equal within a tick of the device's clock, 6 to 13 ns;
/// - the device makes completions visible queue by queue, so an earlier one can appear after a
///   later one was handed out;
/// - the verbs path shows no time stamps; there, the queues take turns.
///
/// The completions of one stream are in one queue, and so always in order.
#[derive(Default)]
pub(super) struct Merge {
    /// The queue that is polled first.
    turn: usize,
    /// How many completions may still be taken from each queue.
    left: Vec<u32>,
}

impl Merge {
    /// Makes room for one more queue.
    pub(super) fn add(&mut self) {
        self.left.push(0);
    }

    /// Allows up to `most` completions of each queue.
    pub(super) fn allow(&mut self, queues: &[Queue], most: impl Fn(&Queue) -> u32) {
        for (left, queue) in self.left.iter_mut().zip(queues) {
            *left = most(queue);
        }
    }

    /// Takes the next completion of the queues that are still allowed one.
    pub(super) fn next(&mut self, queues: &mut [Queue]) -> Option<Completion> {
        self.next_by(queues, Queue::poll)
    }

    /// As [`Self::next`]; `poll` takes the completion of a queue.
    #[inline(always)]
    pub(super) fn next_by<T>(
        &mut self,
        queues: &mut [Queue],
        poll: impl Fn(&mut Queue) -> Option<T>,
    ) -> Option<T> {
        loop {
            let mut earliest: Option<(usize, u64)> = None;
            for step in 0..queues.len() {
                let index = (self.turn + step) % queues.len();
                if self.left[index] == 0 {
                    continue;
                }
                let queue = &mut queues[index];
                match queue.arrival() {
                    Arrival::Empty => queue.process_commands(),
                    Arrival::Unknown => {
                        if let Some(completion) = poll(queue) {
                            self.turn = index + 1;
                            self.left[index] -= 1;
                            return Some(completion);
                        }
                    }
                    Arrival::At(stamp) => {
                        if earliest.is_none_or(|(_, first)| stamp < first) {
                            earliest = Some((index, stamp));
                        }
                    }
                }
            }
            let (index, _) = earliest?;
            if let Some(completion) = poll(&mut queues[index]) {
                self.left[index] -= 1;
                return Some(completion);
            }
            // The CQE was stale: its queue pair is gone, and poll skipped it.
        }
    }
}
