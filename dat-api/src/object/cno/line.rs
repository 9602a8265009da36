//! EVDs that have triggered, in order.
//!
//! Who posts an event puts the EVD here, so that the order is that of the events;
//! but a look may have found the event, and somebody been told, before that. So
//! such an entry is good only if a look confirms it.
//!
//! This file is also compiled into the model (`tests/loom.rs`).

use std::collections::VecDeque;

/// Each EVD, by a name of the type `E`, stands in it once.
#[derive(Debug)]
pub(super) struct Line<E>(VecDeque<Entry<E>>);

#[derive(Clone, Copy, Debug)]
struct Entry<E> {
    evd: E,
    /// A look has found what nobody was told of.
    is_seen: bool,
}

impl<E> Default for Line<E> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<E: Copy + PartialEq> Line<E> {
    /// Puts an EVD at the end, if it does not stand here, and confirms it if it
    /// was seen; `false` if it stands here already.
    pub(super) fn push(&mut self, evd: E, is_seen: bool) -> bool {
        match self.0.iter_mut().find(|entry| entry.evd == evd) {
            Some(entry) => {
                entry.is_seen |= is_seen;
                false
            }
            None => {
                self.0.push_back(Entry { evd, is_seen });
                true
            }
        }
    }

    /// Who is first.
    pub(super) fn first(&self) -> Option<E> {
        self.0.front().map(|entry| entry.evd)
    }

    /// Takes an EVD out; answers whether it stood here, confirmed.
    pub(super) fn remove(&mut self, evd: E) -> bool {
        let place = self.0.iter().position(|entry| entry.evd == evd);
        place
            .and_then(|place| self.0.remove(place))
            .is_some_and(|entry| entry.is_seen)
    }

    /// How many stand here.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_come_first_served_and_each_once() {
        let [a, b, c] = [64, 128, 192];
        let mut line = Line::default();
        assert!(line.push(b, true) && line.push(a, true));
        assert!(!line.push(b, true) && line.push(c, true));
        assert_eq!((line.len(), line.first()), (3, Some(b)));
        assert!(line.remove(a) && !line.remove(a));
        assert!(line.remove(b) && line.push(b, true));
        assert_eq!(line.first(), Some(c));
        assert!(line.remove(c) && line.remove(b) && line.first().is_none());
        assert_eq!(line.len(), 0);
    }

    #[test]
    fn an_entry_keeps_its_place_when_it_is_confirmed() {
        let [a, b] = [64, 128];
        let mut line = Line::default();
        assert!(line.push(a, false) && line.push(b, true));
        assert!(!line.push(a, true) && !line.push(a, false));
        assert_eq!(line.first(), Some(a));
        assert!(line.remove(a), "confirmed");
        assert!(line.push(a, false) && !line.remove(a), "not confirmed");
        assert_eq!((line.len(), line.first()), (1, Some(b)));
    }
}
