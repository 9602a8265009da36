//! The pending triggers of a CNO: EVDs, in the order of their events.
//!
//! A thread that posts an event appends the EVD here, so that the order is that of the events. But
//! a poll may have found the event before that, and another waiter may have got the trigger. So an
//! entry of a posted event counts only once a poll confirms it.
//!
//! This file is also compiled into the model (`tests/interleavings`).

use std::collections::VecDeque;

/// The pending triggers. Each EVD, named by an `E`, appears once.
#[derive(Debug)]
pub(super) struct PendingTriggers<E>(VecDeque<Entry<E>>);

#[derive(Clone, Copy, Debug)]
struct Entry<E> {
    evd: E,
    /// A poll has found an event that no waiter got a trigger for.
    is_seen: bool,
    /// How many waiters may get it, after others have got it for the same events; `None` if none has.
    rest: Option<usize>,
}

impl<E> Default for PendingTriggers<E> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<E: Copy + PartialEq> PendingTriggers<E> {
    /// Appends an EVD unless it is pending already, and confirms its entry if it was seen. Returns
    /// `false` if the EVD was pending already.
    pub(super) fn push(&mut self, evd: E, is_seen: bool) -> bool {
        match self.0.iter_mut().find(|entry| entry.evd == evd) {
            Some(entry) => {
                entry.is_seen |= is_seen;
                entry.rest = None;
                false
            }
            None => {
                let rest = None;
                self.0.push_back(Entry { evd, is_seen, rest });
                true
            }
        }
    }

    /// Returns the first EVD.
    pub(super) fn first(&self) -> Option<E> {
        self.0.front().map(|entry| entry.evd)
    }

    /// Removes an EVD; returns whether it was pending and confirmed.
    pub(super) fn remove(&mut self, evd: E) -> bool {
        self.take(evd).is_some_and(|entry| entry.is_seen)
    }

    /// Removes an EVD for a waiter, as [`Self::remove`]; appends it again while it holds an event
    /// for another waiter. `events` is how many events notify.
    pub(super) fn serve(&mut self, evd: E, events: usize) -> bool {
        let Some(Entry { is_seen, rest, .. }) = self.take(evd) else {
            return false;
        };
        let others = rest
            .map_or(events, |rest| rest.min(events))
            .saturating_sub(1);
        if is_seen && others > 0 {
            let rest = Some(others);
            self.0.push_back(Entry { evd, is_seen, rest });
        }
        is_seen
    }

    fn take(&mut self, evd: E) -> Option<Entry<E>> {
        let place = self.0.iter().position(|entry| entry.evd == evd)?;
        self.0.remove(place)
    }

    /// Returns the number of pending EVDs.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evds_are_served_in_order_and_each_once() {
        let [a, b, c] = [64, 128, 192];
        let mut pending = PendingTriggers::default();
        assert!(pending.push(b, true) && pending.push(a, true));
        assert!(!pending.push(b, true) && pending.push(c, true));
        assert_eq!((pending.len(), pending.first()), (3, Some(b)));
        assert!(pending.remove(a) && !pending.remove(a));
        assert!(pending.remove(b) && pending.push(b, true));
        assert_eq!(pending.first(), Some(c));
        assert!(pending.remove(c) && pending.remove(b) && pending.first().is_none());
        assert_eq!(pending.len(), 0);
    }

    #[test]
    fn an_evd_is_served_once_for_each_event_that_notifies() {
        let [a, b] = [64, 128];
        let mut pending = PendingTriggers::default();
        assert!(pending.push(a, true) && pending.push(b, true));
        assert!(pending.serve(a, 3));
        assert_eq!(pending.first(), Some(b), "others keep their turn");
        assert!(pending.serve(b, 1) && !pending.serve(b, 1));
        // Although no event has been taken yet.
        assert!(pending.serve(a, 3) && pending.serve(a, 3) && !pending.serve(a, 3));
        // Events that were taken meanwhile are for no waiter.
        assert!(pending.push(a, true) && pending.serve(a, 4) && pending.serve(a, 1));
        assert!(!pending.serve(a, 1));
        // New events count from the beginning.
        assert!(pending.push(a, true) && pending.serve(a, 2));
        assert!(!pending.push(a, true) && pending.serve(a, 2) && pending.serve(a, 2));
        // An entry that is not confirmed is served to no waiter.
        assert!(pending.push(b, false) && !pending.serve(b, 2));
        assert_eq!(pending.len(), 0);
    }

    #[test]
    fn an_entry_keeps_its_place_when_it_is_confirmed() {
        let [a, b] = [64, 128];
        let mut pending = PendingTriggers::default();
        assert!(pending.push(a, false) && pending.push(b, true));
        assert!(!pending.push(a, true) && !pending.push(a, false));
        assert_eq!(pending.first(), Some(a));
        assert!(pending.remove(a), "confirmed");
        assert!(
            pending.push(a, false) && !pending.remove(a),
            "not confirmed"
        );
        assert_eq!((pending.len(), pending.first()), (1, Some(b)));
    }
}
