//! Waits in steps, for C interfaces that sleep by themselves.
//!
//! Decision: `docs/decisions/025-cancellation-between-steps.md`

use dat_engine::ControlError;
use dat_engine::wait::{NextStep, WaitOutcome};

pub use dat_engine::wait::{Sleep, Slept};

/// A wait whose first poll has found nothing. Dropping it before its end releases what it holds,
/// and loses no event.
pub trait Steps {
    /// The result of the wait.
    type Answer;

    /// Makes a step of the engine's wait.
    ///
    /// # Errors
    /// The engine's wait has failed.
    fn step(&mut self, slept: Option<&Slept>) -> Result<NextStep, ControlError>;

    /// Returns the result after the engine's wait has ended; `None` if another one follows.
    fn over(&mut self, outcome: Result<WaitOutcome, ControlError>) -> Option<Self::Answer>;

    /// Continues until the wait is over, or the caller has something to do. `slept` is how the
    /// sleep ended that the previous call requested.
    fn go_on(&mut self, mut slept: Option<&Slept>) -> Next<Self::Answer> {
        loop {
            let outcome = match self.step(slept.take()) {
                Ok(NextStep::Sleep(sleep)) => return Next::Sleep(sleep),
                Ok(NextStep::Pause) => return Next::Pause,
                Ok(NextStep::Over(outcome)) => Ok(outcome),
                Err(error) => Err(error),
            };
            if let Some(answer) = self.over(outcome) {
                return Next::Over(answer);
            }
        }
    }
}

/// The result of the first poll of a wait.
pub enum Begun<W: Steps> {
    /// The wait is over.
    Over(W::Answer),
    /// The wait continues.
    Waits(W),
}

/// What the caller of [`Steps::go_on`] does next.
#[derive(Clone, Copy, Debug)]
pub enum Next<T> {
    /// Nothing: the wait is over.
    Over(T),
    /// Sleep, and pass on how the sleep ended.
    Sleep(Sleep),
    /// Do whatever has to be done periodically during a long spin.
    Pause,
}

impl<W: Steps> Begun<W> {
    /// Waits to the end, on this thread.
    pub fn finish(self) -> W::Answer {
        let mut wait = match self {
            Self::Over(answer) => return answer,
            Self::Waits(wait) => wait,
        };
        let mut slept = None;
        loop {
            slept = match wait.go_on(slept.as_ref()) {
                Next::Over(answer) => return answer,
                Next::Pause => None,
                Next::Sleep(sleep) => Some(sleep.sleep()),
            };
        }
    }
}
