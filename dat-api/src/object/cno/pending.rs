//! The pending triggers of a CNO: EVDs, in the order of their events.
//!
//! A thread that posts an event appends the EVD here, so that the order is that of the events. But
//! a poll may have found the event before that, and another waiter may have got the trigger. So an
//! entry of a posted event counts only once a poll confirms it.
//!
//! This file is also compiled into the model (`tests/interleavings`).

use std::collections::VecDeque;
use std::sync::Arc;

use super::{Blocker, Handle};

/// The pending triggers for one role, and those that may take them.
#[derive(Default)]
pub(super) struct Queue {
    /// Each EVD appears once.
    pending: VecDeque<Entry>,
    /// What the threads sleep on. A wait whose blocker was removed is released: it ends without an
    /// EVD. The agent's thread is here from the time that an agent is set until that is called.
    pub(super) waiters: Vec<Arc<Blocker>>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    evd: Handle,
    /// How many waiters may get it: 0 until a poll has found an event that no waiter got a trigger
    /// for, then [`usize::MAX`] until a waiter gets it.
    waiters: usize,
}

impl Queue {
    /// Appends an EVD unless it is pending already, and confirms its entry if it was seen. Returns
    /// `false` if the EVD was pending already.
    pub(super) fn push(&mut self, evd: Handle, is_seen: bool) -> bool {
        let known = self.pending.iter().position(|entry| entry.evd == evd);
        let place = known.unwrap_or(self.pending.len());
        if known.is_none() {
            self.pending.push_back(Entry { evd, waiters: 0 });
        }
        let waiters = &mut self.pending[place].waiters;
        if is_seen || *waiters > 0 {
            *waiters = usize::MAX;
        }
        known.is_none()
    }

    /// Returns the first EVD.
    pub(super) fn first(&self) -> Option<Handle> {
        self.pending.front().map(|entry| entry.evd)
    }

    /// Removes an EVD for a waiter; returns whether it was pending and confirmed. Appends it again
    /// while it holds an event for another waiter. `events` is how many events notify.
    pub(super) fn serve(&mut self, evd: Handle, events: usize) -> bool {
        let place = self.pending.iter().position(|entry| entry.evd == evd);
        let Some(entry) = place.and_then(|place| self.pending.remove(place)) else {
            return false;
        };
        let waiters = entry.waiters.min(events).saturating_sub(1);
        if waiters > 0 {
            self.pending.push_back(Entry { evd, waiters });
        }
        entry.waiters > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evd(bits: usize) -> Handle {
        Handle::from_bits(bits).expect("not 0")
    }

    #[test]
    fn evds_are_served_in_order_and_each_once() {
        let [a, b, c] = [64, 128, 192].map(evd);
        let mut queue = Queue::default();
        assert!(queue.push(b, true) && queue.push(a, true));
        assert!(!queue.push(b, true) && queue.push(c, true));
        assert_eq!((queue.pending.len(), queue.first()), (3, Some(b)));
        assert!(queue.serve(a, 1) && !queue.serve(a, 1));
        assert!(queue.serve(b, 1) && queue.push(b, true));
        assert_eq!(queue.first(), Some(c));
        assert!(queue.serve(c, 1) && queue.serve(b, 1) && queue.first().is_none());
        assert_eq!(queue.first(), None);
    }

    #[test]
    fn an_evd_is_served_once_for_each_event_that_notifies() {
        let [a, b] = [64, 128].map(evd);
        let mut queue = Queue::default();
        assert!(queue.push(a, true) && queue.push(b, true));
        assert!(queue.serve(a, 3));
        assert_eq!(queue.first(), Some(b), "others keep their turn");
        assert!(queue.serve(b, 1) && !queue.serve(b, 1));
        // Although no event has been taken yet.
        assert!(queue.serve(a, 3) && queue.serve(a, 3) && !queue.serve(a, 3));
        // Events that were taken meanwhile are for no waiter.
        assert!(queue.push(a, true) && queue.serve(a, 4) && queue.serve(a, 1));
        assert!(!queue.serve(a, 1));
        // New events count from the beginning.
        assert!(queue.push(a, true) && queue.serve(a, 2));
        assert!(!queue.push(a, true) && queue.serve(a, 2) && queue.serve(a, 2));
        // An entry that is not confirmed is served to no waiter.
        assert!(queue.push(b, false) && !queue.serve(b, 2));
        assert_eq!(queue.first(), None);
    }

    #[test]
    fn an_entry_keeps_its_place_when_it_is_confirmed() {
        let [a, b] = [64, 128].map(evd);
        let mut queue = Queue::default();
        assert!(queue.push(a, false) && queue.push(b, true));
        assert!(!queue.push(a, true) && !queue.push(a, false));
        assert_eq!(queue.first(), Some(a));
        assert!(queue.serve(a, 1), "confirmed");
        assert!(queue.push(a, false) && !queue.serve(a, 1), "not confirmed");
        assert_eq!((queue.pending.len(), queue.first()), (1, Some(b)));
    }
}
