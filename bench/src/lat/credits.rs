//! Credits of the send queue: which requests are signalled, and when a
//! completion is needed before the next post.

/// The credits of a send queue.
pub(super) struct SendCredits {
    depth: u32,
    /// One in this many requests is signalled; its completion returns that many
    /// credits.
    interval: u32,
    since_signaled: u32,
    outstanding: u32,
}

impl SendCredits {
    /// Signals every (depth/2)-th request, and at depth 1 every one, so that half
    /// of the queue is free while a completion is outstanding.
    pub(super) fn new(depth: u32) -> Self {
        Self {
            depth,
            interval: (depth / 2).max(1),
            since_signaled: 0,
            outstanding: 0,
        }
    }

    pub(super) fn depth(&self) -> u32 {
        self.depth
    }

    /// Returns whether the queue has no credit left.
    #[inline(always)]
    pub(super) fn is_full(&self) -> bool {
        self.outstanding >= self.depth
    }

    /// Takes a credit for a request. Returns whether the request is signalled.
    #[inline(always)]
    pub(super) fn post(&mut self) -> bool {
        self.outstanding += 1;
        self.since_signaled += 1;
        let signaled = self.since_signaled == self.interval;
        if signaled {
            self.since_signaled = 0;
        }
        signaled
    }

    /// Returns the credits of a completion to the queue.
    #[inline(always)]
    pub(super) fn completed(&mut self) {
        self.outstanding = self.outstanding.saturating_sub(self.interval);
    }

    /// Returns whether a signalled request is outstanding.
    pub(super) fn has_outstanding(&self) -> bool {
        self.outstanding > self.since_signaled
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    #[test]
    fn a_full_queue_always_has_a_signalled_request_outstanding() {
        for depth in 1..=67 {
            let mut credits = SendCredits::new(depth);
            let mut signals = VecDeque::new();
            let mut posted = 0u32;
            for _ in 0..1000 {
                if credits.is_full() {
                    assert!(credits.has_outstanding(), "depth {depth}");
                    let freed: u32 = signals.pop_front().expect("a signalled request");
                    credits.completed();
                    posted -= freed;
                } else {
                    posted += 1;
                    assert!(posted <= depth, "depth {depth}");
                    if credits.post() {
                        signals.push_back((depth / 2).max(1));
                    }
                }
            }
            while credits.has_outstanding() {
                credits.completed();
                assert!(signals.pop_front().is_some(), "depth {depth}");
            }
            assert!(signals.is_empty(), "depth {depth}");
        }
    }
}
