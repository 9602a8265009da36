//! The announced sleep: one word that the sleeper shares with threads that may wake
//! it.
//!
//! The sleeper announces itself and then checks its source once more. A waker
//! changes the source and then checks for a sleeper. A full fence between the two
//! steps of each thread ensures that at least one sees the other, so no wake-up is
//! lost. A waker that finds no sleeper makes no system call.
//!
//! This file is also compiled into the model (`tests/interleavings`), with the atomics of
//! loom.

use super::sync::{AtomicU32, Ordering, fence};

/// No thread sleeps or is about to.
const AWAKE: u32 = 0;
/// A thread sleeps or is about to. The first waker resets this to `AWAKE`.
const ASLEEP: u32 = 1;

/// The word: whether there is a sleeper to be woken.
#[derive(Debug)]
pub(super) struct SleepWord(AtomicU32);

impl SleepWord {
    pub(super) fn new() -> Self {
        Self(AtomicU32::new(AWAKE))
    }

    /// Announces a sleep. Everything that the caller reads after this call includes
    /// what a waker stored before it checked for a sleeper, or else that waker has
    /// seen the announcement.
    pub(super) fn announce(&self) {
        // A swap, as every write of the word, so that each reads the one before.
        self.0.swap(ASLEEP, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Takes the announcement back. Returns whether a waker has already seen it,
    /// and so has written, or is about to write, a token.
    pub(super) fn retract(&self) -> bool {
        self.0.swap(AWAKE, Ordering::Relaxed) == AWAKE
    }

    /// Returns whether the calling waker must wake a sleeper. Of several wakers
    /// only one gets `true`.
    pub(super) fn take(&self) -> bool {
        fence(Ordering::SeqCst);
        let (relaxed, word) = (Ordering::Relaxed, &self.0);
        word.load(relaxed) == ASLEEP
            && word
                .compare_exchange(ASLEEP, AWAKE, relaxed, relaxed)
                .is_ok()
    }
}
