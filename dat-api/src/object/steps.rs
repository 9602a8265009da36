//! Waits in steps, for faces that sleep by themselves.

pub use dat_engine::wait::{Sleep, Slept};

/// A wait whose first look has found nothing. Dropped before its end, it gives
/// back what it holds, and loses no event.
pub trait Steps {
    /// What the wait answers.
    type Answer;

    /// Goes on until the wait is over, or the caller has something to do. `slept`
    /// is how the sleep ended that the call before this one asked for.
    fn go_on(&mut self, slept: Option<&Slept>) -> Next<Self::Answer>;
}

/// What the first look of a wait has come to.
pub enum Begun<W: Steps> {
    /// The wait is over.
    Over(W::Answer),
    /// The wait goes on.
    Waits(W),
}

/// What the caller of [`Steps::go_on`] does next.
#[derive(Clone, Copy, Debug)]
pub enum Next<T> {
    /// Nothing: the wait is over.
    Over(T),
    /// Sleeps, and passes on how the sleep ended.
    Sleep(Sleep),
    /// Whatever it has to do now and then during a long spin.
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
