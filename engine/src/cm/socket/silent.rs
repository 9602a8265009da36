//! Silent connections, which have not sent their request: how many are allowed, and
//! which one is dropped when there are too many.
//!
//! Anything that reaches a listener can connect and send nothing. Each such
//! connection takes one of the program's descriptors until its time is up. So only
//! few are allowed, and the oldest is dropped for the next one, since it has had
//! the most time. The peer's address does not matter: one host can have many
//! clients, and an attacker many addresses.
//!
//! A busy peer may need a moment for its request. So when all places are taken for
//! the first time, the listeners wait until the oldest connection has been silent
//! for [`GRACE`]. If it is still silent then, this is a flood, and no listener
//! waits again until half of the places are free.

use mio::Token;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The most silent connections, for any limit of descriptors.
const MOST: usize = 1024;
/// Silent connections may take one of this many descriptors.
const SHARE: usize = 4;
/// How long the first connection to be dropped must have been silent.
const GRACE: Duration = Duration::from_millis(100);

/// The silent connections of one manager, and since when they are silent.
pub(super) struct Silent<T> {
    /// Tokens count up, so the first one is the oldest connection.
    since: BTreeMap<Token, (Instant, T)>,
    most: usize,
    /// A connection was silent for the grace period and was dropped.
    flooded: bool,
}

/// Whether another silent connection is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// It is allowed.
    Free,
    /// It is allowed if this one is dropped, unless the request of this one has
    /// arrived.
    Instead(Token),
    /// Not before this time, unless a silent connection sends its request.
    At(Instant),
}

impl<T> Silent<T> {
    pub(super) fn new() -> Self {
        Self {
            since: BTreeMap::new(),
            most: MOST,
            flooded: false,
        }
    }

    /// Sets how many silent connections are allowed: `limit` is the process's limit
    /// of descriptors, and `newest` the descriptor that the kernel allocated last.
    /// The kernel allocates the lowest free descriptor, so at most `limit - newest`
    /// are free. Half of them are left to the program.
    pub(super) fn resize(&mut self, limit: usize, newest: usize) {
        let free = limit.saturating_sub(newest);
        self.most = MOST.min(limit / SHARE).min(free / 2).max(1);
    }

    pub(super) fn insert(&mut self, token: Token, now: Instant, connection: T) {
        self.since.insert(token, (now, connection));
    }

    /// Removes a connection that sent its request or ended.
    pub(super) fn remove(&mut self, token: Token) -> Option<T> {
        let removed = self.since.remove(&token);
        if self.since.len() <= self.most / 2 {
            self.flooded = false;
        }
        removed.map(|(_, connection)| connection)
    }

    pub(super) fn get_mut(&mut self, token: Token) -> Option<&mut T> {
        self.since.get_mut(&token).map(|(_, connection)| connection)
    }

    /// Returns the oldest connection, and since when it is silent.
    pub(super) fn first(&self) -> Option<(Token, Instant)> {
        let (&token, &(since, _)) = self.since.first_key_value()?;
        Some((token, since))
    }

    /// Returns whether another silent connection is allowed.
    pub(super) fn room(&self, now: Instant) -> Room {
        if self.since.len() < self.most {
            return Room::Free;
        }
        self.oldest(now)
    }

    /// Returns whether the oldest silent connection can be dropped; [`Room::Free`]
    /// if there is none.
    pub(super) fn oldest(&self, now: Instant) -> Room {
        match self.first() {
            Some((oldest, since)) => match since.checked_add(GRACE) {
                Some(at) if at > now && !self.flooded => Room::At(at),
                _ => Room::Instead(oldest),
            },
            None => Room::Free,
        }
    }

    /// Records that the oldest connection stayed silent and is dropped: the next
    /// ones are dropped without grace.
    pub(super) fn stayed_silent(&mut self) {
        self.flooded = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns `most` places, of which the first `count` were taken at time `at`.
    fn silent(most: usize, count: usize, at: Instant) -> Silent<()> {
        let mut silent = Silent::new();
        silent.resize(4 * most, 0);
        assert_eq!(silent.most, most);
        for number in 0..count {
            silent.insert(Token(10 + number), at, ());
        }
        silent
    }

    #[test]
    fn places_are_a_fraction_of_the_limit_and_of_the_free_descriptors() {
        let of = |limit, newest| {
            let mut silent = Silent::<()>::new();
            silent.resize(limit, newest);
            silent.most
        };
        assert_eq!(of(1024, 20), 256);
        assert_eq!(of(20_000, 20), 1024);
        assert_eq!(of(usize::MAX, 20), 1024);
        // At most 104 descriptors are free, of which 52 are left to the program.
        assert_eq!(of(1024, 920), 52);
        assert_eq!(of(1024, 1023), 1);
        // The limit was lowered below the number of open descriptors.
        assert_eq!(of(64, 1000), 1);
        assert_eq!(of(0, 3), 1);
    }

    /// The program uses `used` of `limit` descriptors; the rest is available to
    /// silent connections only.
    #[test]
    fn silent_connections_take_at_most_a_third_of_the_free_descriptors() {
        for (limit, used) in [(1024, 20), (1024, 600), (1024, 900), (1024, 1000), (64, 10)] {
            let (mut silent, now) = (Silent::new(), Instant::now());
            silent.stayed_silent();
            for number in 0..5000 {
                // The lowest free descriptor.
                let newest = used + silent.since.len();
                assert!(newest < limit, "{limit} {used}");
                silent.insert(Token(number), now, ());
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
    fn the_oldest_is_dropped_only_when_there_is_no_room() {
        let now = Instant::now();
        let mut silent = silent(4, 3, now);
        let later = now + GRACE;
        assert_eq!(silent.room(later), Room::Free);
        silent.insert(Token(99), later, ());
        assert_eq!(silent.room(later), Room::Instead(Token(10)));
        assert!(silent.remove(Token(10)).is_some());
        assert!(silent.remove(Token(10)).is_none());
        assert_eq!(silent.room(later), Room::Free);
    }

    #[test]
    fn the_first_connection_to_be_dropped_gets_grace_and_later_ones_none() {
        let now = Instant::now();
        let mut silent = silent(4, 4, now);
        assert_eq!(silent.room(now), Room::At(now + GRACE));
        let later = now + GRACE;
        assert_eq!(silent.room(later), Room::Instead(Token(10)));
        silent.stayed_silent();
        silent.remove(Token(10));
        silent.insert(Token(20), later, ());
        assert_eq!(silent.room(later), Room::Instead(Token(11)));
        for token in [11, 12, 13, 20] {
            assert!(silent.get_mut(Token(token)).is_some());
            silent.remove(Token(token));
        }
        // Half of the places were free, so the next one gets grace again.
        for token in 30..34 {
            silent.insert(Token(token), later, ());
        }
        assert_eq!(silent.room(later), Room::At(later + GRACE));
    }
}
