//! Which staged events notify: what a poll for a CNO reports.
//!
//! Decision: `docs/decisions/062-cno-wait-returns-leftovers.md`

/// What an EVD's owner keeps about the staged events that notify.
#[derive(Clone, Copy, Debug)]
pub(super) struct Notice {
    /// An event that notifies was staged or posted since [`Self::take_fresh`].
    is_fresh: bool,
    /// The number of events that were staged after the last one that notifies, whether they have
    /// been taken since or not. Events are taken in order, so an event that notifies is left if
    /// more than this many are.
    after: usize,
}

impl Notice {
    /// No event was staged yet.
    pub(super) const fn new() -> Self {
        Self {
            is_fresh: false,
            after: usize::MAX,
        }
    }

    /// An event is staged.
    #[inline(always)]
    pub(super) fn staged(&mut self, notifies: bool) {
        self.is_fresh |= notifies;
        self.after = match notifies {
            true => 0,
            false => self.after.saturating_add(1),
        };
    }

    /// Events were posted, which notify, and are staged later.
    pub(super) fn posted(&mut self) {
        self.is_fresh = true;
    }

    /// All staged events count as events that notify.
    pub(super) fn count_all(&mut self) {
        self.after = 0;
    }

    /// Returns the place of the first event behind the last one that notifies, of this many staged
    /// events.
    pub(super) fn end(&self, staged: usize) -> usize {
        staged.saturating_sub(self.after)
    }

    /// So many events behind [`Self::end`] were removed. If the last event that notifies was removed
    /// itself, the one before it counts as notifying instead.
    pub(super) fn removed(&mut self, behind: usize) {
        self.after = self.after.saturating_sub(behind);
    }

    /// Returns whether an event that notifies was staged or posted since the last call.
    pub(super) fn take_fresh(&mut self) -> bool {
        core::mem::take(&mut self.is_fresh)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(events: &[bool]) -> Notice {
        let mut notice = Notice::new();
        events.iter().for_each(|&notifies| notice.staged(notifies));
        notice
    }

    #[test]
    fn events_are_left_until_the_last_one_that_notifies_is_taken() {
        let notice = of(&[false, true, false, true, false, false]);
        let left = [6, 5, 4, 3, 2, 1, 0].map(|staged| notice.end(staged) > 0);
        assert_eq!(left, [true, true, true, true, false, false, false]);
        assert_eq!(of(&[false; 3]).end(3), 0);
        assert_eq!(Notice::new().end(0), 0);
    }

    #[test]
    fn an_event_counts_again_after_all_were_taken() {
        let mut notice = of(&[true, false]);
        notice.staged(false);
        assert_eq!(notice.end(1), 0, "only the last one is left");
        notice.staged(true);
        assert_eq!(notice.end(2), 2);
        notice.staged(false);
        notice.count_all();
        assert_eq!(notice.end(3), 3);
    }

    #[test]
    fn events_that_were_removed_are_not_counted() {
        let mut notice = of(&[true, false, false, false]);
        assert_eq!(notice.end(4), 1);
        notice.removed(2);
        assert_eq!((notice.end(2), notice.end(1)), (1, 0));
        let mut none = of(&[false; 2]);
        none.removed(2);
        assert_eq!(none.end(0), 0);
    }

    #[test]
    fn fresh_is_returned_once() {
        let mut notice = of(&[false]);
        assert!(!notice.take_fresh());
        notice.staged(true);
        notice.staged(false);
        assert!(notice.take_fresh() && !notice.take_fresh());
        notice.posted();
        assert!(notice.take_fresh());
    }
}
