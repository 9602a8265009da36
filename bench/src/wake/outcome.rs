//! The results of one policy at one rate, in all rounds.

use dat_api::safe::{WaitCounters, WaitPolicy};

use super::case::RoundResult;
use crate::clock::Clock;
use crate::noise::{Noise, Problem, Waiting};
use crate::report::{Distribution, Reliability};
use crate::stats::rounds::median;
use crate::stats::{Reported, Samples};
use crate::wake::options::Rate;

/// The results of one case.
pub(super) struct Outcome {
    pub(super) rate: Rate,
    pub(super) policy: WaitPolicy,
    pub(super) times: Distribution,
    /// Response times, from the due time; none in a closed loop.
    pub(super) response: Option<Distribution>,
    pub(super) noise: Noise,
    /// The waiter's CPU time per message in each round, microseconds.
    pub(super) cpu: Vec<f64>,
    /// CPU time of the waiter divided by the elapsed time, in each round.
    pub(super) share: Vec<f64>,
    /// Sums of all rounds.
    pub(super) waits: WaitCounters,
    pub(super) refused: u64,
    pub(super) late: u64,
}

impl Outcome {
    pub(super) fn new(rate: Rate, policy: WaitPolicy, clock: &Clock) -> Self {
        let times = || Distribution::new(Samples::new(clock, Reported::FullRoundTrip));
        Self {
            rate,
            policy,
            times: times(),
            response: matches!(rate, Rate::PerSecond(_)).then(times),
            noise: Noise::default(),
            cpu: Vec::new(),
            share: Vec::new(),
            waits: WaitCounters::default(),
            refused: 0,
            late: 0,
        }
    }

    pub(super) fn add(&mut self, result: RoundResult) {
        let cpu = result.ran.cpu_nanoseconds as f64;
        self.cpu.push(cpu / 1000.0 / result.samples.count() as f64);
        self.share.push(result.ran.share());
        self.noise.add(&result.noise);
        self.times.add(&result.samples);
        if let Some(response) = &mut self.response {
            response.add(&result.response);
        }
        self.waits.spins += result.waits.spins;
        self.waits.hits += result.waits.hits;
        self.waits.blocks += result.waits.blocks;
        self.waits.spurious += result.waits.spurious;
        self.refused += result.refused;
        self.late += result.late;
    }

    /// Returns whether the result can be relied on.
    pub(super) fn reliability(&self) -> Reliability<'_> {
        let waiting = match self.policy {
            WaitPolicy::Poll => Waiting::Spins,
            _ => Waiting::Sleeps,
        };
        let case = format!("{} at rate {}", self.policy, self.rate);
        let mut judged = Reliability::of(case, &self.noise, "the waiter", waiting);
        judged.extend(self.behind());
        judged
    }

    /// Returns why the rate was not the requested one, if many messages were late.
    fn behind(&self) -> Option<Problem> {
        /// Most late messages, as a share.
        const MOST_LATE: f64 = 0.01;
        let messages = self.times.samples.count();
        (self.late as f64 > messages as f64 * MOST_LATE).then(|| Problem {
            kind: "behind",
            reason: format!(
                "{} messages were sent late, for {messages} that were measured: the waiter or the machine was too slow for the rate",
                self.late
            ),
            remedy: "lower --rate, or give the waiter and the sender an idle core each with --cpu",
        })
    }

    /// Returns the median of the rounds' CPU time per message, microseconds.
    pub(super) fn cpu(&self) -> f64 {
        median(&self.cpu)
    }

    /// Returns the median of the rounds' shares (0 to 1).
    pub(super) fn share(&self) -> f64 {
        median(&self.share)
    }
}

/// Returns the results of this policy at this rate.
pub(super) fn find(outcomes: &[Outcome], rate: Rate, policy: WaitPolicy) -> Option<&Outcome> {
    outcomes
        .iter()
        .find(|it| it.rate == rate && it.policy == policy)
}
