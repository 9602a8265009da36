//! Timers: one per connection, or other thing with a number.
//!
//! A command starts a timer without knowing the time. The next call of
//! [`Timers::begin`] sets the deadline.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

use crate::spec::Nanos;

/// The timers of things with a number of type `K`.
#[derive(Debug)]
pub(crate) struct Timers<K> {
    /// Things whose timer has no deadline yet, with the duration.
    unstarted: Vec<(K, Nanos)>,
    deadlines: HashMap<K, Nanos>,
    queue: BTreeSet<(Nanos, K)>,
}

impl<K> Default for Timers<K> {
    fn default() -> Self {
        Self {
            unstarted: Vec::new(),
            deadlines: HashMap::new(),
            queue: BTreeSet::new(),
        }
    }
}

impl<K: Copy + Ord + Hash> Timers<K> {
    /// Starts the timer of `id`, instead of one that is running.
    pub(crate) fn start(&mut self, id: K, duration: Nanos) {
        self.stop(id);
        self.unstarted.push((id, duration));
    }

    /// Stops the timer of `id`, if one is running.
    pub(crate) fn stop(&mut self, id: K) {
        self.unstarted.retain(|&(other, _)| other != id);
        if let Some(deadline) = self.deadlines.remove(&id) {
            self.queue.remove(&(deadline, id));
        }
    }

    /// Returns whether a timer has no deadline yet.
    pub(crate) fn has_unstarted(&self) -> bool {
        !self.unstarted.is_empty()
    }

    /// Sets the deadlines of the timers that were started.
    pub(crate) fn begin(&mut self, now: Nanos) {
        for (id, duration) in self.unstarted.drain(..) {
            let deadline = now.saturating_add(duration);
            self.deadlines.insert(id, deadline);
            self.queue.insert((deadline, id));
        }
    }

    /// Removes a timer that has expired. Returns the number.
    pub(crate) fn expire(&mut self, now: Nanos) -> Option<K> {
        let &(deadline, id) = self.queue.first().filter(|(due, _)| *due <= now)?;
        self.queue.remove(&(deadline, id));
        self.deadlines.remove(&id);
        Some(id)
    }

    /// Returns the next deadline.
    pub(crate) fn next(&self) -> Option<Nanos> {
        self.queue.first().map(|&(deadline, _)| deadline)
    }
}
