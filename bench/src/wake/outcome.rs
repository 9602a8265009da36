//! The results of one policy at one rate, in all rounds.

use dat_api::safe::{WaitCounters, WaitPolicy};

use super::case::RoundResult;
use crate::cli::Rate;
use crate::clock::Clock;
use crate::stats::{Reported, Samples};

/// The results of one case.
pub(super) struct Outcome {
    pub(super) rate: Rate,
    pub(super) policy: WaitPolicy,
    /// Of all rounds.
    pub(super) samples: Samples,
    /// The median latency of each round, microseconds.
    pub(super) medians: Vec<f64>,
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
        Self {
            rate,
            policy,
            samples: Samples::new(clock, Reported::FullRoundTrip),
            medians: Vec::new(),
            cpu: Vec::new(),
            share: Vec::new(),
            waits: WaitCounters::default(),
            refused: 0,
            late: 0,
        }
    }

    /// Adds the result of a round.
    pub(super) fn add(&mut self, result: RoundResult) {
        self.medians.push(result.samples.quantile(0.5));
        let cpu = result.cpu as f64;
        self.cpu.push(cpu / 1000.0 / result.samples.count() as f64);
        self.share.push(cpu / result.wall.max(1) as f64);
        self.samples.absorb(&result.samples);
        self.waits.spins += result.waits.spins;
        self.waits.hits += result.waits.hits;
        self.waits.blocks += result.waits.blocks;
        self.waits.spurious += result.waits.spurious;
        self.refused += result.refused;
        self.late += result.late;
    }

    /// Returns the median of the rounds' medians, microseconds.
    pub(super) fn latency(&self) -> f64 {
        median(&self.medians)
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

/// Returns the median: the middle value, or the mean of the middle two.
pub(super) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        count if count % 2 == 1 => sorted[count / 2],
        count => f64::midpoint(sorted[count / 2 - 1], sorted[count / 2]),
    }
}

/// Returns the results of this policy at this rate.
pub(super) fn find(outcomes: &[Outcome], rate: Rate, policy: WaitPolicy) -> Option<&Outcome> {
    outcomes
        .iter()
        .find(|it| it.rate == rate && it.policy == policy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_value_or_the_mean_of_two() {
        assert_eq!(median(&[]), 0.0);
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
    }
}
