//! A wait in steps, for callers that sleep by themselves.

use super::protocol::{self, Begun, Source, Step, WaitCounters, WaitOutcome};
use super::{Blocker, ControlError, Deadline, SignalGuard, Sleep, Slept, SpinBudget, WaitPolicy};

/// [`super::wait_on`] in steps: the caller sleeps between them, outside of this
/// library, and may drop the wait instead of going on.
///
/// All steps of a wait are made with the same blocker, and no other wait at that
/// blocker meanwhile. A wait that is dropped while it sleeps must be
/// [abandoned](Self::abandon) first. Signals of the thread are held back from the
/// first step to the drop.
#[derive(Debug)]
pub struct SteppedWait {
    wait: protocol::Wait<SignalGuard>,
    is_asleep: bool,
}

/// What the caller of [`SteppedWait::go_on`] does next.
#[derive(Clone, Copy, Debug)]
pub enum NextStep {
    /// Nothing: the wait is over.
    Over(WaitOutcome),
    /// Sleeps, and passes on how the sleep ended.
    Sleep(Sleep),
    /// Whatever it has to do now and then during a long spin.
    Pause,
}

impl SteppedWait {
    /// Begins a wait whose first poll has missed. The deadline is not
    /// [`Deadline::NOW`].
    ///
    /// # Errors
    /// The wait is over: the outcome.
    #[inline]
    pub fn begin(
        source: &mut impl Source,
        blocker: &Blocker,
        budget: &mut SpinBudget,
        policy: WaitPolicy,
        deadline: &mut Deadline,
        counters: &mut WaitCounters,
    ) -> Result<Self, WaitOutcome> {
        match protocol::Wait::begin(source, blocker, budget, policy, deadline, counters) {
            Begun::Over(outcome) => Err(outcome),
            Begun::Waits(wait) => Ok(Self {
                wait,
                is_asleep: false,
            }),
        }
    }

    /// Goes on until the wait is over, or the caller has something to do. `slept`
    /// is how the sleep ended that the step before this one asked for.
    ///
    /// # Errors
    /// The source's channel or the system failed. The wait is over.
    #[inline]
    pub fn go_on(
        &mut self,
        source: &mut impl Source,
        blocker: &Blocker,
        budget: &mut SpinBudget,
        counters: &mut WaitCounters,
        slept: Option<&Slept>,
    ) -> Result<NextStep, ControlError> {
        let woken = match slept {
            Some(slept) => {
                self.is_asleep = false;
                Some(blocker.woken(slept)?)
            }
            None => None,
        };
        match self.wait.go_on(source, blocker, budget, counters, woken)? {
            Step::Over(outcome) => Ok(NextStep::Over(outcome)),
            Step::Pause => Ok(NextStep::Pause),
            Step::Sleep(timeout) => {
                let sleep = blocker.prepare(source.channel(), timeout, self.wait.guard())?;
                self.is_asleep = true;
                Ok(NextStep::Sleep(sleep))
            }
        }
    }

    /// Leaves the blocker as a wait that is over does.
    pub fn abandon(&mut self, blocker: &Blocker) {
        if core::mem::take(&mut self.is_asleep) {
            blocker.abandon();
        }
    }
}
