//! The announced sleep: one word between a sleeper and those who may wake it.
//!
//! The sleeper announces itself and then looks once more for what it waits for;
//! a waker brings it and then looks for a sleeper. With a full fence between
//! the two steps of each, at least one sees the other, so no wake-up is lost;
//! and a waker that sees nobody need not make a system call.
//!
//! This file is also compiled into the model (`tests/loom.rs`), with other atomics.

use super::sync::{AtomicU32, Ordering, fence};

/// Nobody sleeps, or is about to.
const AWAKE: u32 = 0;
/// Somebody does; the first waker turns it to `AWAKE`.
const ASLEEP: u32 = 1;

/// Whether there is a sleeper to be woken.
#[derive(Debug)]
pub(super) struct SleepWord(AtomicU32);

impl SleepWord {
    pub(super) fn new() -> Self {
        Self(AtomicU32::new(AWAKE))
    }

    /// "I am going to sleep." What is looked at after this call was brought
    /// before the waker looked for a sleeper, or the waker has seen one.
    pub(super) fn announce(&self) {
        // An exchange, as is every write of the word: each sees the one before.
        self.0.swap(ASLEEP, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// "I am awake." Answers whether a waker was told to wake this sleeper, and
    /// so has left, or is about to leave, a token.
    pub(super) fn retract(&self) -> bool {
        self.0.swap(AWAKE, Ordering::Relaxed) == AWAKE
    }

    /// Whether the caller, who has brought something, must wake a sleeper. Only
    /// one of several is told so.
    pub(super) fn take(&self) -> bool {
        fence(Ordering::SeqCst);
        let (relaxed, word) = (Ordering::Relaxed, &self.0);
        word.load(relaxed) == ASLEEP
            && word
                .compare_exchange(ASLEEP, AWAKE, relaxed, relaxed)
                .is_ok()
    }
}
