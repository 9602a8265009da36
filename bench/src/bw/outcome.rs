//! The results of one size and interface, in all rounds.

use super::pass::Recording;
use crate::exchange::Transfer;
use crate::noise::{Noise, Waiting};
use crate::options::Api;
use crate::output::counted;
use crate::report::Reliability;
use crate::stats::rounds::{Interval, median_interval};

/// The results of one case.
pub(super) struct Outcome {
    /// Message size in bytes.
    pub(super) size: u32,
    pub(super) api: Api,
    /// What each side has sent in all rounds; the peak is that of the fastest round.
    pub(super) sides: Vec<Transfer>,
    /// Messages per second of both sides together, in each round.
    round_rates: Vec<f64>,
    pub(super) noise: Noise,
}

impl Outcome {
    pub(super) fn new(size: u32, api: Api) -> Self {
        Self {
            size,
            api,
            sides: Vec::new(),
            round_rates: Vec::new(),
            noise: Noise::default(),
        }
    }

    pub(super) fn add(&mut self, round: &Recording) {
        self.noise.add(&round.noise);
        self.round_rates.push(round.sides.iter().map(average).sum());
        self.sides.resize(round.sides.len(), Transfer::default());
        for (sum, side) in self.sides.iter_mut().zip(&round.sides) {
            // The other process may have said any numbers.
            sum.messages = sum.messages.saturating_add(side.messages);
            sum.picoseconds = sum.picoseconds.saturating_add(side.picoseconds);
            sum.cpu_nanoseconds = sum.cpu_nanoseconds.saturating_add(side.cpu_nanoseconds);
            sum.idle_nanoseconds = sum.idle_nanoseconds.saturating_add(side.idle_nanoseconds);
            if peak(side) > peak(sum) {
                sum.peak_messages = side.peak_messages;
                sum.peak_picoseconds = side.peak_picoseconds;
            }
        }
    }

    /// Returns what each thread has sent: the client's, and with both directions the server's.
    pub(super) fn threads(&self, both: bool) -> Vec<&[Transfer]> {
        self.sides.chunks(if both { 2 } else { 1 }).collect()
    }

    /// Returns what all threads of the client have sent.
    pub(super) fn client(&self, both: bool) -> Transfer {
        let mut sum = Transfer::default();
        for sides in self.threads(both) {
            let side = &sides[0];
            sum.messages = sum.messages.saturating_add(side.messages);
            sum.cpu_nanoseconds = sum.cpu_nanoseconds.saturating_add(side.cpu_nanoseconds);
            sum.idle_nanoseconds = sum.idle_nanoseconds.saturating_add(side.idle_nanoseconds);
        }
        sum
    }

    /// Returns the number of measured messages of both sides.
    pub(super) fn messages(&self) -> u64 {
        let each = self.sides.iter().map(|side| side.messages);
        each.fold(0, u64::saturating_add)
    }

    /// Returns the messages per second: the sum of both sides' averages.
    pub(super) fn rate(&self) -> f64 {
        self.sides.iter().map(average).sum()
    }

    /// Returns the messages per second in the fastest part of a round, the sum of both
    /// sides; none if a side has not looked for it.
    pub(super) fn peak_rate(&self) -> Option<f64> {
        self.sides.iter().map(peak).sum()
    }

    /// Returns the bytes per second in each round.
    pub(super) fn round_bytes(&self) -> Vec<f64> {
        self.round_rates
            .iter()
            .map(|&rate| self.bytes(rate))
            .collect()
    }

    /// Returns the confidence interval of the median of the rounds, bytes per second.
    pub(super) fn interval(&self) -> Option<Interval> {
        median_interval(&self.round_bytes())
    }

    /// Returns the bytes per second of a number of messages per second.
    pub(super) fn bytes(&self, rate: f64) -> f64 {
        rate * f64::from(self.size)
    }

    /// Returns whether the result can be relied on.
    pub(super) fn reliability(&self) -> Reliability<'_> {
        let case = format!("{}, api {}", counted(self.size, "byte"), self.api.name());
        Reliability::of(case, &self.noise, "the measuring thread", Waiting::Spins)
    }
}

/// Returns the CPU time of a side's thread, in nanoseconds for each message that the side has sent.
pub(super) fn cpu(side: &Transfer) -> f64 {
    side.cpu_nanoseconds as f64 / side.messages.max(1) as f64
}

/// Returns the same without the polls that found nothing. It is an upper bound.
pub(super) fn busy(side: &Transfer) -> f64 {
    let nanoseconds = side.cpu_nanoseconds.saturating_sub(side.idle_nanoseconds);
    nanoseconds as f64 / side.messages.max(1) as f64
}

/// Returns the messages per second of a side.
pub(super) fn average(side: &Transfer) -> f64 {
    side.messages as f64 * 1e12 / side.picoseconds.max(1) as f64
}

fn peak(side: &Transfer) -> Option<f64> {
    (side.peak_messages > 0)
        .then(|| side.peak_messages as f64 * 1e12 / side.peak_picoseconds.max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transfer(messages: u64, microseconds: u64, peak: (u64, u64)) -> Transfer {
        Transfer {
            messages,
            picoseconds: microseconds * 1_000_000,
            peak_messages: peak.0,
            peak_picoseconds: peak.1 * 1_000_000,
            cpu_nanoseconds: microseconds * 900,
            idle_nanoseconds: microseconds * 400,
        }
    }

    #[test]
    fn the_average_is_all_messages_by_all_time_and_both_directions_are_added() {
        let mut outcome = Outcome::new(1000, Api::Engine);
        for (near, far) in [
            (transfer(10, 10, (5, 4)), transfer(10, 20, (2, 2))),
            (transfer(10, 30, (3, 1)), transfer(10, 20, (1, 2))),
        ] {
            outcome.add(&Recording {
                sides: vec![near, far],
                ..Recording::default()
            });
        }
        // 20 in 40 µs each.
        assert!((outcome.rate() - 1e6).abs() < 1e-3, "{}", outcome.rate());
        assert_eq!(outcome.messages(), 40);
        assert!((outcome.bytes(outcome.rate()) - 1e9).abs() < 1.0);
        // 3 in 1 µs, and 2 in 2 µs.
        let peak = outcome.peak_rate().unwrap();
        assert!((peak - 4e6).abs() < 1e-3, "{peak}");
        let rounds = outcome.round_bytes();
        assert!((rounds[0] - 1.5e9).abs() < 1.0, "{rounds:?}");
        assert_eq!(outcome.interval(), None);
        // 36 µs and 20 µs of 40 µs, for 20 messages.
        let client = &outcome.sides[0];
        assert_eq!((cpu(client), busy(client)), (1800.0, 1000.0));
    }

    #[test]
    fn any_numbers_of_the_other_process_can_be_added() {
        let mut outcome = Outcome::new(1, Api::Engine);
        let most = Transfer {
            messages: u64::MAX,
            picoseconds: u64::MAX,
            peak_messages: u64::MAX,
            peak_picoseconds: 1,
            cpu_nanoseconds: u64::MAX,
            idle_nanoseconds: u64::MAX,
        };
        for _ in 0..2 {
            outcome.add(&Recording {
                sides: vec![most; 2],
                ..Recording::default()
            });
        }
        assert_eq!(outcome.messages(), u64::MAX);
    }

    #[test]
    fn a_peak_that_one_side_has_not_looked_for_is_none() {
        let mut outcome = Outcome::new(1, Api::C);
        outcome.add(&Recording {
            sides: vec![transfer(1, 1, (1, 1)), transfer(1, 1, (0, 0))],
            ..Recording::default()
        });
        assert_eq!(outcome.peak_rate(), None);
    }
}
