//! The send queue of one endpoint: its room, which requests are signalled, and
//! what each completion says.

use std::collections::VecDeque;

/// Requests from one signalled request to the next; a completion is for all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Batch {
    /// Requests.
    slots: u32,
    /// Those that carry a message.
    pub(super) messages: u32,
    /// Whether one carries a grant.
    pub(super) has_grant: bool,
}

/// The requests of a send queue.
pub(super) struct SendQueue {
    depth: u32,
    /// One in this many requests is signalled.
    moderation: u32,
    used: u32,
    /// The requests since the last signalled one.
    unsignaled: Batch,
    signaled: VecDeque<Batch>,
}

impl SendQueue {
    pub(super) fn new(depth: u32) -> Self {
        Self {
            depth,
            moderation: 1,
            used: 0,
            unsignaled: Batch::default(),
            // The most that can be outstanding, so that a post never allocates.
            signaled: VecDeque::with_capacity(depth as usize),
        }
    }

    /// Sets how many requests share a completion, at most the depth. The queue must be
    /// empty.
    pub(super) fn set_moderation(&mut self, moderation: u32) {
        debug_assert!(self.used == 0, "requests are outstanding");
        self.moderation = moderation.clamp(1, self.depth);
    }

    /// Returns how many requests fit.
    #[inline(always)]
    pub(super) fn room(&self) -> u32 {
        self.depth - self.used
    }

    pub(super) fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Returns whether the last request was not signalled.
    pub(super) fn has_tail(&self) -> bool {
        self.unsignaled.slots > 0
    }

    /// Takes room for a message. Returns whether its request is signalled: by
    /// moderation, or because no request follows it.
    #[inline(always)]
    pub(super) fn post_message(&mut self, is_last: bool) -> bool {
        self.used += 1;
        self.unsignaled.slots += 1;
        self.unsignaled.messages += 1;
        let signals = is_last || self.unsignaled.slots >= self.moderation;
        if signals {
            self.end_batch();
        }
        signals
    }

    /// Takes room for a grant, whose request is signalled.
    pub(super) fn post_grant(&mut self) {
        self.used += 1;
        self.unsignaled.slots += 1;
        self.unsignaled.has_grant = true;
        self.end_batch();
    }

    #[inline(always)]
    fn end_batch(&mut self) {
        self.signaled
            .push_back(core::mem::take(&mut self.unsignaled));
    }

    /// Returns what a completion is for. `None` if no request was signalled.
    #[inline(always)]
    pub(super) fn completed(&mut self) -> Option<Batch> {
        let batch = self.signaled.pop_front()?;
        self.used -= batch.slots;
        Some(batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_in_so_many_requests_is_signalled_and_the_last_one() {
        let mut queue = SendQueue::new(8);
        queue.set_moderation(3);
        let signals: Vec<bool> = (1..=8)
            .map(|number| queue.post_message(number == 8))
            .collect();
        let expected = [false, false, true, false, false, true, false, true];
        assert_eq!(signals, expected);
        assert_eq!((queue.room(), queue.has_tail()), (0, false));
        let messages: Vec<u32> =
            std::iter::from_fn(|| queue.completed().map(|it| it.messages)).collect();
        assert_eq!(messages, [3, 3, 2]);
        assert!(queue.is_empty());
    }

    proptest! {
        /// A queue that is too full for the next list always waits for a completion.
        #[test]
        fn a_full_queue_has_a_signalled_request(
            depth in 1u32..40, moderation in 1u32..50, list in 1u32..8,
            grants in proptest::collection::vec(any::<bool>(), 300),
        ) {
            let mut queue = SendQueue::new(depth);
            queue.set_moderation(moderation);
            // As the options require: a list has a whole number of batches.
            let list = if moderation.min(depth) > 1 { 1 } else { list.min(depth) };
            let (mut posted, mut completed) = (0u64, 0u64);
            for grant in grants {
                if grant && queue.room() > 0 {
                    queue.post_grant();
                } else if queue.room() >= list {
                    for _ in 0..list {
                        queue.post_message(false);
                    }
                    posted += u64::from(list);
                } else {
                    let batch = queue.completed();
                    prop_assert!(batch.is_some(), "nothing is signalled in a full queue");
                    completed += u64::from(batch.unwrap().messages);
                }
                prop_assert!(queue.signaled.len() <= depth as usize);
            }
            queue.post_message(true);
            while let Some(batch) = queue.completed() {
                completed += u64::from(batch.messages);
            }
            prop_assert_eq!(completed, posted + 1);
        }
    }
}
