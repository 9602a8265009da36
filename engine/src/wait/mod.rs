//! Waiting for something that polling can see: spin, then sleep.
//!
//! [`wait`] polls a [`Source`]; spins within a budget that learns how long
//! waits take ([`SpinBudget`]); then asks the device for an event, polls once
//! more, and blocks until the event, a [`Blocker::wake`], a signal or the
//! [`Deadline`]. A wait whose first poll hits costs that poll and nothing else:
//! no clock, no system call.
//!
//! The order of the steps is what makes it right, and a model checker goes
//! through all interleavings of it (`tests/loom.rs`): see [`protocol`].

mod blocker;
mod budget;
mod deadline;
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
pub use deadline::{Deadline, monotonic_nanos};
pub use policy::{WaitPolicy, WaitPolicyError};
pub use protocol::{BlockResult, Source, WaitCounters, WaitOutcome};
pub use set::{ChannelEvent, ChannelSet};
pub use signals::SignalGuard;
pub use stepped::{NextStep, SteppedWait};

use crate::error::ControlError;

/// Waits until `source` is ready, `deadline` has passed, or a signal was
/// handled.
///
/// The first poll comes before everything else; with [`Deadline::NOW`] it is
/// the only one. A deadline that is counted from the wait begins when the first
/// poll has missed, and is absolute from then on, so the same value may be
/// given to a next wait. One thread at a time waits at a `blocker`.
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

/// [`wait`] for who has just polled, and missed: that was the first poll. The
/// deadline is not [`Deadline::NOW`].
///
/// # Errors
/// As there.
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
