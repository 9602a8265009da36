//! What control calls need done to the completions of an EVD.
//!
//! A control call sends a command to the owner of the EVD (`posted.rs`). If no call owns the EVD,
//! the control call owns it itself and processes the command at once. It does not take the EVD away
//! from a waiting thread, for three reasons:
//!
//! - Attaching and detaching an endpoint wait for no other thread. A waiter would first have to run
//!   and release the EVD; it may be stopped, or have a lower priority on the same processor.
//! - The owner passes completions to endpoints, which takes their locks. A call that waited for the
//!   owner while it holds such a lock would deadlock.
//! - Posting needs room in full rings, and must neither wait nor allocate, so it can only set a
//!   flag for the owner (`Posted::request_poll`).
//!
//! Decisions:
//! - `docs/decisions/014-payload-in-cqe.md`
//! - `docs/decisions/021-full-queue-makes-room.md`
//! - `docs/decisions/030-purge-on-reset.md`

use dat_engine::CompletionQueueHandle;
use dat_engine::sync::Backoff;

use super::Evd;
use super::posted::Command;
use super::take::CommandResult;
use crate::handle::Handle;

/// How many rounds of [`Backoff`] a call waits for the owner of the EVD: about 10 milliseconds, most
/// of them asleep.
const OWNERS_ROUNDS: u32 = 300;

impl Evd {
    /// Takes the completions that the completion queues hold, as far as there is room, and releases
    /// endpoints that are gone. If another call owns the EVD, that call is woken to do it.
    pub(crate) fn drain(&self) {
        self.send_and_wait(Command::Sweep, |_| true);
    }

    /// As [`Self::drain`], but waits until the owner has also processed what it took, or
    /// `is_enough` returns `true`, or about 10 ms have passed. Returns whether the owner has done
    /// so.
    pub(crate) fn drain_behind_owner(&self, is_enough: impl Fn() -> bool) -> bool {
        let until = |round| is_enough() || round >= OWNERS_ROUNDS;
        self.send_and_wait(Command::Sweep, until) == CommandResult::Processed
    }

    /// Removes the completions of an endpoint whose queue pair is reset or gone, both staged ones
    /// and stale CQEs. When this returns they are gone, and their room is free.
    pub(crate) fn purge(&self, ep: Handle) {
        self.send_and_wait(Command::Purge(ep), |_| false);
    }

    /// Copies received and read payload that the device has left in CQEs to its memory; a device
    /// may put short payloads there. Called before a registration ends, because its memory may be
    /// freed afterwards.
    pub(crate) fn copy_payloads(&self) {
        let may_hold = |queue: &CompletionQueueHandle| queue.may_hold_payload();
        let holds = self.attachments().queues().any(may_hold);
        if holds {
            self.send_and_wait(Command::Sweep, |_| false);
        }
    }

    /// Sends a command and processes it, unless another call owns the EVD: then waits until the
    /// owner has processed it, or `is_enough` returns `true` for a round.
    pub(super) fn send_and_wait(
        &self,
        command: Command,
        is_enough: impl Fn(u32) -> bool,
    ) -> CommandResult {
        let number = self.posted.send([command]);
        let mut backoff = Backoff::new();
        for round in 0.. {
            match self.process_commands() {
                CommandResult::OwnerWoken if self.posted.is_done(number) => break,
                CommandResult::OwnerWoken if is_enough(round) => return CommandResult::OwnerWoken,
                CommandResult::OwnerWoken => backoff.wait(),
                end => return end,
            }
        }
        CommandResult::Processed
    }
}
