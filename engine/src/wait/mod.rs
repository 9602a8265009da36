//! Waiting for a source that can be polled: spin, then sleep.
//!
//! [`wait`] polls a [`Source`]; spins within a budget that is learned from
//! earlier waits ([`SpinBudget`]); then arms the completion queue, polls once
//! more, and sleeps until the event, a [`Blocker::wake`], a signal or the
//! [`Deadline`]. A wait whose first poll hits costs only that poll: it reads no
//! clock and makes no system call.
//!
//! The order of the steps is what prevents lost wake-ups: see [`protocol`].
//! `tests/interleavings` checks all interleavings of the steps with a model checker.
//!
//! Decision: `docs/decisions/024-adaptive-wait.md`

mod blocker;
mod budget;
mod channel;
mod deadline;
mod halt;
mod policy;
pub mod protocol;
mod raw;
mod set;
mod signals;
mod stepped;
mod sync;
mod word;

#[cfg(test)]
mod tests;

pub use blocker::{Blocker, Sleep, Slept};
pub use budget::SpinBudget;
pub use channel::ChannelFds;
pub use deadline::{Deadline, monotonic_nanos};
pub use policy::{WaitPolicy, WaitPolicyError};
pub use protocol::{BlockResult, Source, WaitCounters, WaitOutcome};
pub use set::{ChannelEvent, ChannelSet};
pub use signals::{SignalGuard, SignalMask};
pub use stepped::{NextStep, SteppedWait};

use crate::error::ControlError;

/// Waits until `source` is ready, `deadline` has passed, or a signal was handled.
///
/// The first poll comes first; with [`Deadline::NOW`] it is the only step. A
/// deadline that is relative to the wait starts when the first poll has missed, and
/// is absolute from then on, so the same value may be passed to a next wait. Only
/// one thread at a time may wait at a `blocker`.
///
/// # Errors
/// The source's channel or the system failed.
#[inline]
pub fn wait(
    source: &mut impl Source,
    blocker: &Blocker,
    budget: &mut SpinBudget,
    policy: WaitPolicy,
    deadline: &mut Deadline,
    counters: &mut WaitCounters,
) -> Result<WaitOutcome, ControlError> {
    protocol::run(source, blocker, budget, policy, deadline, counters)
}

/// Waits as [`wait`] does, for a caller whose own poll has just missed; that was
/// the first poll. The deadline is not [`Deadline::NOW`].
///
/// # Errors
/// As for [`wait`].
#[inline]
pub fn wait_on(
    source: &mut impl Source,
    blocker: &Blocker,
    budget: &mut SpinBudget,
    policy: WaitPolicy,
    deadline: &mut Deadline,
    counters: &mut WaitCounters,
) -> Result<WaitOutcome, ControlError> {
    protocol::run_on(source, blocker, budget, policy, deadline, counters)
}
