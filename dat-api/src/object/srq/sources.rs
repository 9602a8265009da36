//! Where the receives of a shared queue are reported: the EVDs of its endpoints, and endpoints
//! without an EVD, which poll a completion queue of their own.
//!
//! A post that finds the queue full goes through them. They are therefore read without a lock, as
//! handles; a handle that has become stale is skipped. Control calls change them, one at a time.
//!
//! Decision: `docs/decisions/021-full-queue-makes-room.md`

use core::sync::atomic::{AtomicUsize, Ordering};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, OnceLock};

use super::Srq;
use crate::handle::Handle;
use dat_engine::sync::Mutex;

/// The number of entries in the first chunk; each further chunk has twice as many.
const FIRST: usize = 8;
/// Enough chunks for all objects of a process.
const CHUNKS: usize = 18;

/// The EVDs and endpoints that receives are reported to.
#[derive(Default)]
pub(super) struct Sources {
    /// Handles, or 0. A chunk lives as long as the queue.
    chunks: [OnceLock<Box<[AtomicUsize]>>; CHUNKS],
    known: Mutex<Known>,
}

/// The part that changes need.
#[derive(Default)]
struct Known {
    sources: HashMap<Handle, Source>,
    /// Entries that were used and are free now.
    free: Vec<usize>,
}

struct Source {
    place: usize,
    /// The number of endpoints that report there.
    users: u32,
}

/// Registers where an endpoint reports the receives it takes from a shared queue, until this is
/// dropped.
pub(crate) struct Reporting {
    srq: Arc<Srq>,
    source: Handle,
}

impl Sources {
    /// Calls `visit` with each of them, until `visit` returns `false`.
    pub(super) fn visit(&self, mut visit: impl FnMut(Handle) -> bool) {
        let chunks = self.chunks.iter().map_while(OnceLock::get);
        for place in chunks.flat_map(|chunk| chunk.iter()) {
            if let Some(source) = Handle::from_bits(place.load(Ordering::Acquire))
                && !visit(source)
            {
                return;
            }
        }
    }

    /// Returns all of them.
    pub(super) fn list(&self) -> Vec<Handle> {
        self.known.lock().sources.keys().copied().collect()
    }

    /// Counts one more endpoint that reports there.
    fn add(&self, handle: Handle) {
        let mut known = self.known.lock();
        let Known { sources, free } = &mut *known;
        let places = sources.len() + free.len();
        match sources.entry(handle) {
            Entry::Occupied(mut found) => found.get_mut().users += 1,
            Entry::Vacant(vacant) => {
                let place = free.pop().unwrap_or(places);
                vacant.insert(Source { place, users: 1 });
                self.put(place, handle.bits());
            }
        }
    }

    /// Counts one endpoint less.
    fn leave(&self, handle: Handle) {
        let mut known = self.known.lock();
        let Known { sources, free } = &mut *known;
        let Some(source) = sources.get_mut(&handle) else {
            return;
        };
        source.users -= 1;
        if source.users == 0 {
            let place = source.place;
            sources.remove(&handle);
            free.push(place);
            self.put(place, 0);
        }
    }

    fn put(&self, place: usize, bits: usize) {
        // Chunk n begins at FIRST * (2^n - 1).
        let chunk = (place / FIRST + 1).ilog2() as usize;
        let length = FIRST << chunk;
        if let Some(chunk) = self.chunks.get(chunk) {
            let places = chunk.get_or_init(|| (0..length).map(|_| AtomicUsize::new(0)).collect());
            places[place + FIRST - length].store(bits, Ordering::Release);
        }
    }
}

impl Reporting {
    /// Registers where an endpoint reports.
    pub(crate) fn new(srq: &Arc<Srq>, source: Handle) -> Self {
        srq.sources.add(source);
        Self {
            srq: Arc::clone(srq),
            source,
        }
    }
}

impl Drop for Reporting {
    fn drop(&mut self) {
        self.srq.sources.leave(self.source);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handle(number: usize) -> Handle {
        Handle::from_bits(number).expect("not 0")
    }

    fn seen(sources: &Sources) -> Vec<usize> {
        let mut seen = Vec::new();
        sources.visit(|source| {
            seen.push(source.bits());
            true
        });
        seen.sort_unstable();
        seen
    }

    #[test]
    fn each_source_is_visited_once_while_an_endpoint_reports_there() {
        let sources = Sources::default();
        assert_eq!(seen(&sources), []);
        for number in [3, 5, 3] {
            sources.add(handle(number));
        }
        assert_eq!(seen(&sources), [3, 5]);
        sources.leave(handle(3));
        assert_eq!(seen(&sources), [3, 5]);
        sources.leave(handle(3));
        assert_eq!(seen(&sources), [5]);
        // No endpoint reports there any more.
        sources.leave(handle(3));
        assert_eq!(seen(&sources), [5]);
        assert_eq!(sources.list(), [handle(5)]);
    }

    #[test]
    fn every_source_gets_an_entry_and_entries_are_reused() {
        let sources = Sources::default();
        let all: Vec<usize> = (1..=1000).collect();
        for &number in &all {
            sources.add(handle(number));
        }
        assert_eq!(seen(&sources), all);
        let chunks = || sources.chunks.iter().filter(|one| one.get().is_some());
        let before = chunks().count();
        for &number in &all {
            sources.leave(handle(number));
            sources.add(handle(number + 1000));
        }
        let shifted: Vec<usize> = (1001..=2000).collect();
        assert_eq!(seen(&sources), shifted);
        assert_eq!(chunks().count(), before);
    }

    #[test]
    fn a_visit_ends_when_the_visitor_returns_false() {
        let sources = Sources::default();
        for number in 1..=20 {
            sources.add(handle(number));
        }
        let mut visits = 0;
        sources.visit(|_| {
            visits += 1;
            visits < 10
        });
        assert_eq!(visits, 10);
    }

    #[test]
    fn visits_run_while_sources_change() {
        let sources = Sources::default();
        sources.add(handle(7));
        std::thread::scope(|scope| {
            let changes = scope.spawn(|| {
                for number in 100..300 {
                    sources.add(handle(number));
                    if number % 3 != 0 {
                        sources.leave(handle(number));
                    }
                }
            });
            while !changes.is_finished() {
                let seen = seen(&sources);
                assert!(seen.contains(&7));
                assert!(
                    seen.iter()
                        .all(|&one| one == 7 || (100..300).contains(&one))
                );
            }
        });
    }
}
