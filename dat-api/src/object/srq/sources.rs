//! Where the receives of a shared queue are reported: the EVDs of its endpoints,
//! and those endpoints that have none, which poll a queue of their own.
//!
//! A post that finds the queue full goes through them. So they are read without
//! a lock, and by handle: what has gone meanwhile is stale, and passed over.
//! Control calls change them, one at a time.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, OnceLock};

use super::Srq;
use crate::handle::Handle;
use dat_engine::sync::Mutex;

/// Places in the first chunk; each further one has twice as many.
const FIRST: usize = 8;
/// More places than there can be objects.
const CHUNKS: usize = 18;

/// See the head of the file.
#[derive(Default)]
pub(super) struct Sources {
    /// Handles, or 0. None of them goes before the queue does.
    chunks: [OnceLock<Box<[AtomicUsize]>>; CHUNKS],
    known: Mutex<Known>,
}

/// What changing them takes.
#[derive(Default)]
struct Known {
    sources: HashMap<Handle, Source>,
    /// Places that were used, and are not now.
    free: Vec<usize>,
}

struct Source {
    place: usize,
    /// Endpoints that report there.
    users: u32,
}

/// An endpoint reports there what it takes from a shared queue, while this
/// lives.
pub(crate) struct Reporting {
    srq: Arc<Srq>,
    source: Handle,
}

impl Sources {
    /// Each of them, until `visit` answers `false`.
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

    /// All of them.
    pub(super) fn list(&self) -> Vec<Handle> {
        self.known.lock().sources.keys().copied().collect()
    }

    /// One more endpoint reports there.
    fn enter(&self, handle: Handle) {
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

    /// One of them does no more.
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
        // Chunk n begins where those before it end: at FIRST * (2^n - 1).
        let chunk = (place / FIRST + 1).ilog2() as usize;
        let length = FIRST << chunk;
        if let Some(chunk) = self.chunks.get(chunk) {
            let places = chunk.get_or_init(|| (0..length).map(|_| AtomicUsize::new(0)).collect());
            places[place + FIRST - length].store(bits, Ordering::Release);
        }
    }
}

impl Reporting {
    /// Begins.
    pub(crate) fn new(srq: &Arc<Srq>, source: Handle) -> Self {
        srq.sources.enter(source);
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
    fn each_is_seen_once_for_as_long_as_somebody_reports_there() {
        let sources = Sources::default();
        assert_eq!(seen(&sources), []);
        for number in [3, 5, 3] {
            sources.enter(handle(number));
        }
        assert_eq!(seen(&sources), [3, 5]);
        sources.leave(handle(3));
        assert_eq!(seen(&sources), [3, 5]);
        sources.leave(handle(3));
        assert_eq!(seen(&sources), [5]);
        // Nobody reports there any more.
        sources.leave(handle(3));
        assert_eq!(seen(&sources), [5]);
        assert_eq!(sources.list(), [handle(5)]);
    }

    #[test]
    fn there_is_a_place_for_each_and_places_serve_again() {
        let sources = Sources::default();
        let all: Vec<usize> = (1..=1000).collect();
        for &number in &all {
            sources.enter(handle(number));
        }
        assert_eq!(seen(&sources), all);
        let chunks = || sources.chunks.iter().filter(|one| one.get().is_some());
        let before = chunks().count();
        for &number in &all {
            sources.leave(handle(number));
            sources.enter(handle(number + 1000));
        }
        let shifted: Vec<usize> = (1001..=2000).collect();
        assert_eq!(seen(&sources), shifted);
        assert_eq!(chunks().count(), before);
    }

    #[test]
    fn who_has_seen_enough_sees_no_more() {
        let sources = Sources::default();
        for number in 1..=20 {
            sources.enter(handle(number));
        }
        let mut visits = 0;
        sources.visit(|_| {
            visits += 1;
            visits < 10
        });
        assert_eq!(visits, 10);
    }

    #[test]
    fn reading_goes_on_while_others_come_and_go() {
        let sources = Sources::default();
        sources.enter(handle(7));
        std::thread::scope(|scope| {
            let changes = scope.spawn(|| {
                for number in 100..300 {
                    sources.enter(handle(number));
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
