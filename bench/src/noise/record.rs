//! What disturbs a measuring thread: sums over the rounds.

use serde::{Deserialize, Serialize};

use super::look::Hiccups;

/// How long a thread ran in an elapsed time.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Ran {
    pub(crate) elapsed_nanoseconds: u64,
    /// CPU time, system calls included (`CLOCK_THREAD_CPUTIME_ID`).
    pub(crate) cpu_nanoseconds: u64,
    /// How often the kernel took the processor away from the thread.
    pub(crate) involuntary_switches: u64,
}

impl Ran {
    /// Returns the share of the time in which the thread ran, at most 1.
    pub(crate) fn share(self) -> f64 {
        match self.elapsed_nanoseconds {
            0 => 1.0,
            elapsed => (self.cpu_nanoseconds as f64 / elapsed as f64).min(1.0),
        }
    }

    /// Returns what has come since an earlier reading of the same watch.
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            elapsed_nanoseconds: self.elapsed_nanoseconds - earlier.elapsed_nanoseconds,
            cpu_nanoseconds: self.cpu_nanoseconds - earlier.cpu_nanoseconds,
            involuntary_switches: self.involuntary_switches - earlier.involuntary_switches,
        }
    }

    /// Adds another time. The other process may have said any numbers.
    pub(super) fn add(&mut self, other: Self) {
        for (sum, more) in [
            (&mut self.elapsed_nanoseconds, other.elapsed_nanoseconds),
            (&mut self.cpu_nanoseconds, other.cpu_nanoseconds),
            (&mut self.involuntary_switches, other.involuntary_switches),
        ] {
            *sum = sum.saturating_add(more);
        }
    }
}

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
    pub(super) fn of(value: f64) -> Self {
        Self {
            least: value,
            most: value,
        }
    }

    pub(super) fn with(self, other: Self) -> Self {
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

    #[test]
    fn any_numbers_of_the_other_process_can_be_added() {
        let most = Ran {
            elapsed_nanoseconds: u64::MAX,
            cpu_nanoseconds: u64::MAX,
            involuntary_switches: u64::MAX,
        };
        let round = Noise {
            responder: Some(most),
            ..Noise::default()
        };
        let mut sum = round.clone();
        sum.add(&round);
        assert_eq!(sum.responder, Some(most));
    }
}
