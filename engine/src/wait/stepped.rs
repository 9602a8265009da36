//! A wait in steps, for callers that sleep themselves.
//!
//! Decision: `docs/decisions/025-cancellation-between-steps.md`

use super::protocol::{self, Begun, Source, Step, WaitCounters, WaitOutcome};
use super::{Blocker, ControlError, Deadline, SignalGuard, Sleep, Slept, SpinBudget, WaitPolicy};

/// [`super::wait_on`] in steps: the caller sleeps between steps, outside of this
/// library, and may drop the wait instead of continuing it.
///
/// All steps of a wait use the same blocker, which no other wait uses meanwhile. A
/// wait that is dropped during its sleep must be [abandoned](Self::abandon) first.
/// The thread's signals are blocked from the first step to the drop.
#[derive(Debug)]
pub struct SteppedWait {
    policy: WaitPolicy,
    deadline: Deadline,
    /// `None` before the first step.
    wait: Option<protocol::Wait<SignalGuard>>,
    is_asleep: bool,
}

/// What the caller of [`SteppedWait::go_on`] has to do next.
#[derive(Clone, Copy, Debug)]
pub enum NextStep {
    /// Nothing: the wait is over.
    Over(WaitOutcome),
    /// Sleep, and pass on how the sleep ended.
    Sleep(Sleep),
    /// Do periodic work during a long spin.
    Pause,
}

impl SteppedWait {
    /// Returns a wait whose first poll has missed. The deadline is not [`Deadline::NOW`].
    #[inline]
    #[must_use]
    pub fn new(policy: WaitPolicy, deadline: Deadline) -> Self {
        Self {
            policy,
            deadline,
            wait: None,
            is_asleep: false,
        }
    }

    /// Continues until the wait is over or the caller has to do something. `slept`
    /// is the result of the sleep that the previous step requested. A step after the end
    /// begins another wait, with the same deadline.
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
        let wait = match &mut self.wait {
            Some(wait) => wait,
            none => {
                let (policy, deadline) = (self.policy, &mut self.deadline);
                match protocol::Wait::begin(source, blocker, budget, policy, deadline, counters) {
                    Begun::Over(outcome) => return Ok(NextStep::Over(outcome)),
                    Begun::Waits(wait) => none.insert(wait),
                }
            }
        };
        match wait.go_on(source, blocker, budget, counters, woken)? {
            Step::Over(outcome) => {
                self.wait = None;
                Ok(NextStep::Over(outcome))
            }
            Step::Pause => Ok(NextStep::Pause),
            Step::Sleep(timeout) => {
                let sleep = blocker.prepare(source.channel(), timeout, wait.guard());
                self.is_asleep = true;
                Ok(NextStep::Sleep(sleep))
            }
        }
    }

    /// Leaves the blocker in the state that a finished wait leaves it in.
    pub fn abandon(&mut self, blocker: &Blocker) {
        if core::mem::take(&mut self.is_asleep) {
            blocker.abandon();
        }
    }
}
