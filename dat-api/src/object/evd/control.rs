//! What control calls have done with the completions of an EVD.
//!
//! They send the owner of the EVD a letter (`posted.rs`), and are the owner
//! themselves if no other call is: then the letter is done at once. They do not take
//! the EVD away from a waiting thread, for three reasons:
//! - Attaching and detaching an endpoint wait for no other thread. A waiter would
//!   first have to be scheduled and let go; it can be stopped, or have a lower
//!   priority on the same processor.
//! - The owner acts on completions, which takes locks of endpoints. A call that
//!   waited for the owner while it holds such a lock could wait for ever.
//! - Posting needs room in full rings and must neither wait nor allocate, so it has
//!   to leave word (`Posted::ask_relief`) in any case.

use dat_engine::CompletionQueueHandle;

use super::Evd;
use super::posted::Letter;
use super::take::{Attended, pause};
use crate::handle::Handle;

/// Times of [`pause`] that the owner of an EVD is given to let go of it: some 10
/// milliseconds, most of them asleep.
const OWNERS_ROUNDS: u32 = 300;

impl Evd {
    /// If no call owns the EVD: takes what its completion queues hold, as far as
    /// there is room, and lets go of endpoints that are no more. Otherwise the owner
    /// is woken to do it.
    pub(crate) fn drain(&self) {
        self.send_and_wait(Letter::Sweep, |_| true);
    }

    /// [`Self::drain`], and what the owner has just taken has been acted on when
    /// this returns: the call waits for the owner, unless `is_enough`, or the owner
    /// is away for milliseconds. Returns whether the owner has taken it.
    pub(crate) fn drain_behind_owner(&self, is_enough: impl Fn() -> bool) -> bool {
        let until = |round| is_enough() || round >= OWNERS_ROUNDS;
        self.send_and_wait(Letter::Sweep, until) == Attended::Done
    }

    /// Forgets the completions of an endpoint, whose queue pair is reset or gone:
    /// those that were taken from the device and not handed out, and those in the
    /// rings. When this returns they are gone, and their room is free.
    pub(crate) fn purge(&self, ep: Handle) {
        self.send_and_wait(Letter::Purge(ep), |_| false);
    }

    /// What was received or read has reached its memory when this returns: a
    /// device may leave short payloads in the completions, from where they are
    /// copied when these are taken out of the rings. For the end of a registration:
    /// its memory may be gone when the consumer looks.
    pub(crate) fn bring_payloads(&self) {
        let may_hold = |queue: &CompletionQueueHandle| queue.may_hold_payload();
        let holds = self.ledger().queues().any(may_hold);
        if holds {
            self.send_and_wait(Letter::Sweep, |_| false);
        }
    }

    /// Sends a letter, and does what it says unless another call owns the EVD: then
    /// waits until the owner has done it, or `is_enough` returns `true` for a round.
    pub(super) fn send_and_wait(
        &self,
        letter: Letter,
        is_enough: impl Fn(u32) -> bool,
    ) -> Attended {
        let number = self.posted.send([letter]);
        for round in 0.. {
            match self.attend() {
                Attended::Busy if self.posted.is_done(number) => break,
                Attended::Busy if is_enough(round) => return Attended::Busy,
                Attended::Busy => pause(round),
                end => return end,
            }
        }
        Attended::Done
    }
}
