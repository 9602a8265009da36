//! The results of one size and interface, in all rounds.

use super::conditions::Conditions;
use crate::noise::{Noise, Problem, Waiting};
use crate::options::{Api, Wait};
use crate::output::counted;
use crate::report::{Distribution, Reliability, Series};
use crate::stats::pace::Pace;

/// The result of one size and interface.
pub(super) struct Outcome {
    /// Message size in bytes.
    pub(super) size: u32,
    /// The interface.
    pub(super) api: Api,
    /// Round trips; in an open loop, response times.
    pub(super) times: Distribution,
    /// The same over the time of the case.
    pub(super) series: Series,
    /// The rest of an open loop; none in a closed one.
    pub(super) open: Option<Open>,
    /// What disturbed the measuring thread in all rounds.
    pub(super) noise: Noise,
    /// Whether the received bytes were compared with those sent.
    pub(super) verified: bool,
}

/// What an open loop has beside response times.
pub(super) struct Open {
    /// Requested messages per second.
    pub(super) rate: f64,
    pub(super) service: Distribution,
    pub(super) pace: Pace,
}

impl Open {
    /// Returns why the response times are unreliable, if the sender fell behind.
    fn behind(&self) -> Option<Problem> {
        let pace = &self.pace;
        pace.fell_behind(self.rate).then(|| Problem {
            kind: "behind",
            reason: format!(
                "the sender FELL BEHIND: {:.0} of {:.0} messages per second, {} of {} not sent, {:.3} ms late at most; so response times grow with the length of the run",
                pace.achieved(),
                self.rate,
                pace.due - pace.sent,
                pace.due,
                pace.longest_lag as f64 / 1e6
            ),
            remedy: "lower --rate, or allow more messages in flight with -t",
        })
    }
}

impl Outcome {
    /// Returns the messages per second; none in a closed loop.
    pub(super) fn rate(&self) -> Option<f64> {
        self.open.as_ref().map(|open| open.rate)
    }

    /// Returns whether the result can be relied on.
    pub(super) fn reliability(&self, conditions: &Conditions) -> Reliability<'_> {
        let waiting = match conditions.wait {
            Some(Wait::Adaptive | Wait::Block) if self.api != Api::Engine => Waiting::Sleeps,
            _ => Waiting::Spins,
        };
        let mut case = format!("{}, api {}", counted(self.size, "byte"), self.api.name());
        if let Some(open) = &self.open {
            case += &format!(", {}/s", open.rate);
        }
        let mut judged = Reliability::of(case, &self.noise, "the measuring thread", waiting);
        judged.extend(self.open.as_ref().and_then(Open::behind));
        judged
    }
}
