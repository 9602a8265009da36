//! Connections that have not sent their request: how many there may be, and
//! which one goes when there are too many.
//!
//! Anything that reaches a listener can connect and say nothing. Each such
//! connection takes one of the program's descriptors until its time is up, so
//! there may be only few of them, and the oldest makes room for the next: it
//! has had the most time to speak. Where a peer connects from does not matter,
//! since a host can have many clients and a stranger many addresses.
//!
//! A busy peer may also need a moment for its request. So when the places are
//! used up for the first time, the listeners wait until the oldest connection
//! has had [`GRACE`]. If that connection is still silent then, peers of that
//! kind are about, and no listener waits again until half of the places are
//! free.

use mio::Token;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Most silent connections, however many descriptors a process may have.
const MOST: usize = 1024;
/// They may take one descriptor of this many that the process may have.
const SHARE: usize = 4;
/// How long the first connection that has to go may have been silent.
const GRACE: Duration = Duration::from_millis(100);

/// The silent connections of one manager.
pub(super) struct Silent {
    /// Tokens count up, so the first one is the oldest.
    since: BTreeMap<Token, Instant>,
    most: usize,
    /// A connection had its grace, and had to go.
    flooded: bool,
}

/// Whether there is room for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// There is.
    Free,
    /// If this one goes, unless its request has come.
    Instead(Token),
    /// Not before this time, unless one speaks.
    At(Instant),
}

impl Silent {
    pub(super) fn new() -> Self {
        Self {
            since: BTreeMap::new(),
            most: MOST,
            flooded: false,
        }
    }

    /// Sets how many there may be: `limit` is the process's limit of
    /// descriptors, and `newest` the last one that the kernel gave. It gives
    /// the lowest that is free, so that at most `limit - newest` are free, of
    /// which the program keeps half.
    pub(super) fn resize(&mut self, limit: usize, newest: usize) {
        let free = limit.saturating_sub(newest);
        self.most = MOST.min(limit / SHARE).min(free / 2).max(1);
    }

    pub(super) fn insert(&mut self, token: Token, now: Instant) {
        self.since.insert(token, now);
    }

    /// Removes one that spoke or ended. Returns whether it was silent.
    pub(super) fn remove(&mut self, token: Token) -> bool {
        let was = self.since.remove(&token).is_some();
        if self.since.len() <= self.most / 2 {
            self.flooded = false;
        }
        was
    }

    pub(super) fn contains(&self, token: Token) -> bool {
        self.since.contains_key(&token)
    }

    /// Whether another one may come.
    pub(super) fn room(&self, now: Instant) -> Room {
        if self.since.len() < self.most {
            return Room::Free;
        }
        self.oldest(now)
    }

    /// Whether the oldest one can go; [`Room::Free`] if there is none.
    pub(super) fn oldest(&self, now: Instant) -> Room {
        match self.since.first_key_value() {
            Some((&oldest, &since)) => match since.checked_add(GRACE) {
                Some(at) if at > now && !self.flooded => Room::At(at),
                _ => Room::Instead(oldest),
            },
            None => Room::Free,
        }
    }

    /// The oldest one stayed silent and goes: the next ones go at once.
    pub(super) fn stayed_silent(&mut self) {
        self.flooded = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With `most` places, the first `count` of them taken at `at`.
    fn silent(most: usize, count: usize, at: Instant) -> Silent {
        let mut silent = Silent::new();
        silent.resize(4 * most, 0);
        assert_eq!(silent.most, most);
        for number in 0..count {
            silent.insert(Token(10 + number), at);
        }
        silent
    }

    #[test]
    fn the_places_are_a_part_of_what_the_process_may_have_and_of_what_is_free() {
        let of = |limit, newest| {
            let mut silent = Silent::new();
            silent.resize(limit, newest);
            silent.most
        };
        assert_eq!(of(1024, 20), 256);
        assert_eq!(of(20_000, 20), 1024);
        assert_eq!(of(usize::MAX, 20), 1024);
        // Of 104 that may be free, the program keeps 52.
        assert_eq!(of(1024, 920), 52);
        assert_eq!(of(1024, 1023), 1);
        // The limit was lowered below what is open.
        assert_eq!(of(64, 1000), 1);
        assert_eq!(of(0, 3), 1);
    }

    /// `used` descriptors of `limit` are the program's; the rest is offered to
    /// silent connections only.
    #[test]
    fn a_third_of_what_the_program_leaves_is_the_most_they_take() {
        for (limit, used) in [(1024, 20), (1024, 600), (1024, 900), (1024, 1000), (64, 10)] {
            let (mut silent, now) = (Silent::new(), Instant::now());
            silent.stayed_silent();
            for number in 0..5000 {
                // The lowest free one.
                let newest = used + silent.since.len();
                assert!(newest < limit, "{limit} {used}");
                silent.insert(Token(number), now);
                silent.resize(limit, newest);
                while silent.since.len() > silent.most {
                    let Room::Instead(oldest) = silent.room(now) else {
                        panic!("no grace is given in a flood");
                    };
                    silent.remove(oldest);
                    silent.stayed_silent();
                }
            }
            let (count, left) = (silent.since.len(), limit - used);
            assert!(count <= left / 3 + 1, "{limit} {used}: {count}");
            assert!(
                count >= (left / 3).min(limit / 4) - 1,
                "{limit} {used}: {count}"
            );
        }
    }

    #[test]
    fn the_oldest_goes_and_only_when_there_is_no_room() {
        let now = Instant::now();
        let mut silent = silent(4, 3, now);
        let later = now + GRACE;
        assert_eq!(silent.room(later), Room::Free);
        silent.insert(Token(99), later);
        assert_eq!(silent.room(later), Room::Instead(Token(10)));
        assert!(silent.remove(Token(10)));
        assert!(!silent.remove(Token(10)));
        assert_eq!(silent.room(later), Room::Free);
    }

    #[test]
    fn the_first_that_has_to_go_gets_its_grace_and_the_next_ones_none() {
        let now = Instant::now();
        let mut silent = silent(4, 4, now);
        assert_eq!(silent.room(now), Room::At(now + GRACE));
        let later = now + GRACE;
        assert_eq!(silent.room(later), Room::Instead(Token(10)));
        silent.stayed_silent();
        silent.remove(Token(10));
        silent.insert(Token(20), later);
        assert_eq!(silent.room(later), Room::Instead(Token(11)));
        for token in [11, 12, 13, 20] {
            assert!(silent.contains(Token(token)));
            silent.remove(Token(token));
        }
        // Half of the places were free: it begins anew.
        for token in 30..34 {
            silent.insert(Token(token), later);
        }
        assert_eq!(silent.room(later), Room::At(later + GRACE));
    }
}
