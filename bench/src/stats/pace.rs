//! How well a sender kept its schedule.

use serde::Serialize;

/// A sender that is slower than the schedule by more than this share fell behind,
const TOLERANCE: f64 = 0.01;
/// unless its last message was sent at most this long after it was due, nanoseconds.
const LEAST_LAG: u64 = 1_000_000;

/// The messages of an open loop, in all rounds. Times are nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Pace {
    /// Messages that were due.
    pub(crate) due: u64,
    /// Messages that were sent before the time limit.
    pub(crate) sent: u64,
    /// Messages that were sent when the next one was due already.
    pub(crate) late: u64,
    /// The longest time from due to sent.
    #[serde(rename = "longest_lag_nanoseconds")]
    pub(crate) longest_lag: u64,
    /// The longest time from due to sent of the last message of a round.
    #[serde(rename = "final_lag_nanoseconds")]
    pub(crate) final_lag: u64,
    /// From the first message to the last one, and one interval.
    #[serde(rename = "elapsed_nanoseconds")]
    pub(crate) elapsed: u64,
}

impl Pace {
    /// Converts times from ticks.
    pub(crate) fn in_nanoseconds(self, per_tick: f64) -> Self {
        let convert = |ticks: u64| (ticks as f64 * per_tick) as u64;
        Self {
            longest_lag: convert(self.longest_lag),
            final_lag: convert(self.final_lag),
            elapsed: convert(self.elapsed),
            ..self
        }
    }

    /// Adds another round.
    pub(crate) fn add(&mut self, round: &Self) {
        self.due += round.due;
        self.sent += round.sent;
        self.late += round.late;
        self.longest_lag = self.longest_lag.max(round.longest_lag);
        self.final_lag = self.final_lag.max(round.final_lag);
        self.elapsed += round.elapsed;
    }

    /// Returns the messages per second that were sent.
    pub(crate) fn achieved(&self) -> f64 {
        self.sent as f64 * 1e9 / self.elapsed.max(1) as f64
    }

    /// Returns whether the sender did not keep this rate, messages per second.
    pub(crate) fn fell_behind(&self, rate: f64) -> bool {
        let is_slow = self.achieved() < rate * (1.0 - TOLERANCE);
        self.sent < self.due || (is_slow && self.final_lag >= LEAST_LAG)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_that_keeps_its_rate_does_not_fall_behind() {
        let round = Pace {
            due: 100,
            sent: 100,
            late: 1,
            longest_lag: 2000,
            final_lag: 1000,
            elapsed: 100_500_000,
        };
        let mut all = round;
        all.add(&Pace {
            late: 2,
            longest_lag: 1000,
            ..round
        });
        assert_eq!((all.due, all.late, all.longest_lag), (200, 3, 2000));
        assert!((all.achieved() - 995.0).abs() < 0.1, "{}", all.achieved());
        assert!(!all.fell_behind(1000.0));
        // The last message was nearly on time: the run was too short to tell.
        assert!(!all.fell_behind(1010.0));
        let late = Pace {
            final_lag: 2_000_000,
            ..all
        };
        assert!(late.fell_behind(1010.0) && !late.fell_behind(1000.0));
        let unsent = Pace { sent: 99, ..round };
        assert!(unsent.fell_behind(1.0));
    }
}
