//! The send queue's places: which requests ask for a completion, and when a
//! completion must be awaited before the next post.

/// Accounts for the places of a send queue of a given depth.
pub(super) struct Window {
    depth: u32,
    /// Every so-many-th request asks for a completion, which frees that many places.
    interval: u32,
    since_signaled: u32,
    outstanding: u32,
}

impl Window {
    /// At depth 1 every request is signalled; deeper, every (depth/2)-th, so
    /// that half of the queue is left while a completion is awaited.
    pub(super) fn new(depth: u32) -> Self {
        Self {
            depth,
            interval: (depth / 2).max(1),
            since_signaled: 0,
            outstanding: 0,
        }
    }

    /// Whether no request may be posted before a completion was taken.
    #[inline(always)]
    pub(super) fn is_full(&self) -> bool {
        self.outstanding >= self.depth
    }

    /// Counts a request about to be posted; answers whether it asks for a completion.
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

    /// Counts a completion.
    #[inline(always)]
    pub(super) fn completed(&mut self) {
        self.outstanding = self.outstanding.saturating_sub(self.interval);
    }

    /// Whether a completion is still to come.
    pub(super) fn awaits_completion(&self) -> bool {
        self.outstanding > self.since_signaled
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    #[test]
    fn a_full_window_always_has_a_completion_to_come() {
        for depth in 1..=67 {
            let mut window = Window::new(depth);
            let mut signals = VecDeque::new();
            let mut posted = 0u32;
            for _ in 0..1000 {
                if window.is_full() {
                    assert!(window.awaits_completion(), "depth {depth}");
                    let freed: u32 = signals.pop_front().expect("a signalled request");
                    window.completed();
                    posted -= freed;
                } else {
                    posted += 1;
                    assert!(posted <= depth, "depth {depth}");
                    if window.post() {
                        signals.push_back((depth / 2).max(1));
                    }
                }
            }
            while window.awaits_completion() {
                window.completed();
                assert!(signals.pop_front().is_some(), "depth {depth}");
            }
            assert!(signals.is_empty(), "depth {depth}");
        }
    }
}
