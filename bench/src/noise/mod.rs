//! What disturbs a measuring thread, and whether its results can be relied on.
//!
//! ```text
//! counters  what the kernel counts: CPU time, switches, run queue, steal, frequency
//! look      a short look at the core before each round: gaps and speed
//! verdict   when a result is unreliable: reason and remedy
//! ```
//!
//! Nothing of this runs in a measuring loop. The counters are read before the
//! first and after the last message of a round. Gaps are looked for before a
//! round, by a thread that only reads the clock: in the loop, each reading would
//! add to the latency that it measures.

mod counters;
mod look;
mod verdict;

use serde::{Deserialize, Serialize};

pub(crate) use counters::{Ran, Watch};
pub(crate) use look::Hiccups;
pub(crate) use verdict::{Problem, Waiting, problems};

/// What disturbed a thread while it measured: sums over the rounds.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct Noise {
    /// The thread's time.
    #[serde(flatten)]
    pub(crate) ran: Ran,
    /// Time in which the thread was ready to run and waited for a processor; none
    /// if the kernel does not count it.
    pub(crate) run_queue_nanoseconds: Option<u64>,
    pub(crate) voluntary_switches: u64,
    /// Rounds that ended on another CPU than they began on.
    pub(crate) migrations: u64,
    /// Time that the hypervisor took from the thread's CPU, in steps of the
    /// kernel's tick (10 ms); none if the kernel does not count it.
    pub(crate) stolen_nanoseconds: Option<u64>,
    /// Frequency of the thread's CPU, before and after the rounds; none if sysfs
    /// does not show it.
    pub(crate) frequency_megahertz: Option<Range>,
    /// Time of one step of a fixed loop before each round.
    pub(crate) step_nanoseconds: Option<Range>,
    pub(crate) hiccups: Hiccups,
    /// The thread of the other process that answers messages.
    pub(crate) responder: Option<Ran>,
}

/// The least and the greatest value.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Range {
    pub(crate) least: f64,
    pub(crate) most: f64,
}

impl Range {
    fn of(value: f64) -> Self {
        Self {
            least: value,
            most: value,
        }
    }

    fn with(self, other: Self) -> Self {
        Self {
            least: self.least.min(other.least),
            most: self.most.max(other.most),
        }
    }

    /// Returns the greatest value relative to the least.
    pub(crate) fn ratio(self) -> f64 {
        self.most / self.least
    }
}

impl Noise {
    /// Adds another round.
    pub(crate) fn add(&mut self, round: &Self) {
        self.ran.add(round.ran);
        self.run_queue_nanoseconds = both(
            self.run_queue_nanoseconds,
            round.run_queue_nanoseconds,
            u64::saturating_add,
        );
        self.voluntary_switches += round.voluntary_switches;
        self.migrations += round.migrations;
        self.stolen_nanoseconds = both(
            self.stolen_nanoseconds,
            round.stolen_nanoseconds,
            u64::saturating_add,
        );
        self.frequency_megahertz = both(
            self.frequency_megahertz,
            round.frequency_megahertz,
            Range::with,
        );
        self.step_nanoseconds = both(self.step_nanoseconds, round.step_nanoseconds, Range::with);
        self.hiccups.add(&round.hiccups);
        self.responder = both(self.responder, round.responder, |mut sum, ran| {
            sum.add(ran);
            sum
        });
    }
}

/// Combines two values, or returns the one that is known.
fn both<T>(one: Option<T>, other: Option<T>, combine: impl FnOnce(T, T) -> T) -> Option<T> {
    match (one, other) {
        (Some(one), Some(other)) => Some(combine(one, other)),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_added_and_unknown_values_stay_unknown() {
        let round = |cpu, step| Noise {
            ran: Ran {
                elapsed_nanoseconds: 100,
                cpu_nanoseconds: cpu,
                involuntary_switches: 1,
            },
            step_nanoseconds: Some(Range::of(step)),
            stolen_nanoseconds: Some(10),
            ..Noise::default()
        };
        let mut sum = Noise::default();
        sum.add(&round(50, 1.0));
        sum.add(&round(30, 1.5));
        assert_eq!(sum.ran.share(), 0.4);
        assert_eq!(sum.ran.involuntary_switches, 2);
        assert_eq!(sum.stolen_nanoseconds, Some(20));
        assert_eq!(sum.step_nanoseconds.unwrap().ratio(), 1.5);
        assert_eq!(sum.run_queue_nanoseconds, None);
        assert_eq!(sum.responder, None);
    }
}
