//! What is kept of the samples: an HDR histogram of every one of them, and
//! exact sums for the mean and the standard deviation.
//!
//! Nothing here allocates after creation, so the measuring loops may record
//! in place. Sums are kept in clock ticks as integers (128 bits hold 2^64
//! squares of half-hour samples), so the deviation suffers neither rounding
//! of the samples nor cancellation.

use std::time::Duration;

use hdrhistogram::Histogram;

use crate::clock::Clock;

/// The longest sample told apart; longer ones count as this in the histogram
/// (minimum, maximum, mean and deviation stay exact).
const LONGEST: Duration = Duration::from_secs(60);
/// Decimal digits a histogram bucket tells apart: 0.1 % of the value.
const DIGITS: u8 = 3;
/// perftest leaves this many of the largest samples out before it names its `t_max`.
const LEFT_OUT_BY_PERFTEST: usize = 2;

/// What part of a measured round trip is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reported {
    /// The way there, taken as half of there and back (send and write).
    HalfRoundTrip,
    /// There and back (read: the answer is the operation's second half).
    FullRoundTrip,
}

impl Reported {
    fn divisor(self) -> f64 {
        match self {
            Self::HalfRoundTrip => 2.0,
            Self::FullRoundTrip => 1.0,
        }
    }
}

/// The samples of one message size.
pub(crate) struct Samples {
    /// Reported nanoseconds.
    histogram: Histogram<u64>,
    /// Reported nanoseconds per tick, with 32 binary places.
    scale: u64,
    nanoseconds_per_tick: f64,
    count: u64,
    sum: u128,
    sum_of_squares: u128,
    min: u64,
    /// The largest ticks seen, largest first.
    largest: [u64; LEFT_OUT_BY_PERFTEST + 1],
}

impl Samples {
    pub(crate) fn new(clock: &Clock, reported: Reported) -> Self {
        let nanoseconds_per_tick = clock.nanoseconds_per_tick() / reported.divisor();
        let longest = LONGEST.as_nanos() as u64;
        Self {
            histogram: Histogram::new_with_bounds(1, longest, DIGITS)
                .expect("the bounds are constants that the histogram accepts"),
            scale: (nanoseconds_per_tick * (1u64 << 32) as f64).round() as u64,
            nanoseconds_per_tick,
            count: 0,
            sum: 0,
            sum_of_squares: 0,
            min: u64::MAX,
            largest: [0; LEFT_OUT_BY_PERFTEST + 1],
        }
    }

    /// Records one round trip of so many clock ticks.
    #[inline]
    pub(crate) fn record(&mut self, ticks: u64) {
        let nanoseconds = (u128::from(ticks) * u128::from(self.scale) + (1 << 31)) >> 32;
        self.histogram
            .saturating_record(u64::try_from(nanoseconds).unwrap_or(u64::MAX));
        self.count += 1;
        self.sum += u128::from(ticks);
        self.sum_of_squares += u128::from(ticks) * u128::from(ticks);
        self.min = self.min.min(ticks);
        if ticks > self.largest[LEFT_OUT_BY_PERFTEST] {
            self.keep_large(ticks);
        }
    }

    #[cold]
    fn keep_large(&mut self, ticks: u64) {
        let place = self.largest.partition_point(|&kept| kept >= ticks);
        self.largest[place..].rotate_right(1);
        self.largest[place] = ticks;
    }

    /// Forgets every sample.
    pub(crate) fn clear(&mut self) {
        self.histogram.reset();
        (self.count, self.sum, self.sum_of_squares) = (0, 0, 0);
        self.min = u64::MAX;
        self.largest = [0; LEFT_OUT_BY_PERFTEST + 1];
    }

    /// Takes over the samples of another, made with the same clock and for the
    /// same part of the round trip.
    pub(crate) fn absorb(&mut self, other: &Self) {
        self.histogram
            .add(&other.histogram)
            .expect("both have the same bounds");
        self.count += other.count;
        self.sum += other.sum;
        self.sum_of_squares += other.sum_of_squares;
        self.min = self.min.min(other.min);
        for ticks in other.largest {
            if ticks > self.largest[LEFT_OUT_BY_PERFTEST] {
                self.keep_large(ticks);
            }
        }
    }

    /// How many samples were recorded.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// All samples, in reported nanoseconds.
    pub(crate) fn histogram(&self) -> &Histogram<u64> {
        &self.histogram
    }

    fn microseconds(&self, ticks: f64) -> f64 {
        ticks * self.nanoseconds_per_tick / 1000.0
    }

    /// The smallest sample, exact, in microseconds.
    pub(crate) fn min(&self) -> f64 {
        if self.count == 0 {
            0.0
        } else {
            self.microseconds(self.min as f64)
        }
    }

    /// The largest sample, exact, in microseconds.
    pub(crate) fn max(&self) -> f64 {
        self.microseconds(self.largest[0] as f64)
    }

    /// What perftest calls `t_max`: the largest sample but for the two largest,
    /// in microseconds (the largest, if there are no more than two).
    pub(crate) fn perftest_max(&self) -> f64 {
        if self.count > LEFT_OUT_BY_PERFTEST as u64 {
            self.microseconds(self.largest[LEFT_OUT_BY_PERFTEST] as f64)
        } else {
            self.max()
        }
    }

    /// The mean of all samples, in microseconds.
    pub(crate) fn mean(&self) -> f64 {
        if self.count == 0 {
            return 0.0;
        }
        self.microseconds(self.sum as f64 / self.count as f64)
    }

    /// The standard deviation of all samples (of the population), in microseconds.
    pub(crate) fn stdev(&self) -> f64 {
        if self.count == 0 {
            return 0.0;
        }
        // n·Σx² − (Σx)² in integers while it fits: no cancellation.
        let n = u128::from(self.count);
        let exact = n
            .checked_mul(self.sum_of_squares)
            .zip(self.sum.checked_mul(self.sum))
            .map(|(left, right)| (left - right) as f64);
        let numerator = exact.unwrap_or_else(|| {
            self.count as f64 * self.sum_of_squares as f64 - (self.sum as f64).powi(2)
        });
        self.microseconds(numerator.max(0.0).sqrt() / self.count as f64)
    }

    /// The value that this share (0 to 1) of the samples does not exceed, in
    /// microseconds, to the histogram's three digits.
    pub(crate) fn quantile(&self, share: f64) -> f64 {
        if self.count == 0 {
            return 0.0;
        }
        // A bucket answers with its upper end, which no sample need have reached.
        (self.histogram.value_at_quantile(share) as f64 / 1000.0).min(self.max())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// One tick is one nanosecond, reported whole.
    fn samples_of(values: &[u64]) -> Samples {
        let mut samples = Samples::new(&Clock::monotonic(), Reported::FullRoundTrip);
        values.iter().for_each(|&value| samples.record(value));
        samples
    }

    /// The straightforward way, over all values kept.
    fn brute_stdev(values: &[u64]) -> f64 {
        let n = values.len() as f64;
        let mean = values.iter().map(|&v| v as f64).sum::<f64>() / n;
        (values
            .iter()
            .map(|&v| (v as f64 - mean).powi(2))
            .sum::<f64>()
            / n)
            .sqrt()
            / 1000.0
    }

    #[test]
    fn deviations_below_a_microsecond_count() {
        // 0.9 to 1.7 µs: a deviation computed in whole microseconds would be 0.
        let values: Vec<u64> = (0..998).map(|i| 900 + i * 800 / 997).collect();
        let samples = samples_of(&values);
        assert!((samples.stdev() - brute_stdev(&values)).abs() < 1e-9);
        assert!(samples.stdev() > 0.2, "{}", samples.stdev());
    }

    #[test]
    fn halves_are_reported_for_one_way_figures() {
        let mut samples = Samples::new(&Clock::monotonic(), Reported::HalfRoundTrip);
        [2000, 4000, 6000]
            .into_iter()
            .for_each(|ticks| samples.record(ticks));
        assert_eq!(samples.min(), 1.0);
        assert_eq!(samples.mean(), 2.0);
        assert_eq!(samples.max(), 3.0);
        assert!((samples.quantile(0.5) - 2.0).abs() <= 0.002);
    }

    #[test]
    fn the_true_maximum_and_perftests_are_told_apart() {
        let samples = samples_of(&[5000, 1000, 9000, 2000, 9000, 3000]);
        assert_eq!(samples.max(), 9.0);
        assert_eq!(samples.perftest_max(), 5.0);
        assert_eq!(samples_of(&[1000, 2000]).perftest_max(), 2.0);
    }

    #[test]
    fn a_sample_beyond_the_histogram_keeps_the_exact_maximum() {
        let samples = samples_of(&[1000, 3_600_000_000_000]);
        assert_eq!(samples.max(), 3.6e9);
        assert_eq!(samples.histogram().len(), 2);
    }

    #[test]
    fn rounds_put_together_are_as_one() {
        let all: Vec<u64> = (1..=3000).map(|i| i * 7919 % 100_003).collect();
        let mut together = samples_of(&[]);
        let mut round = samples_of(&[5]);
        for values in all.chunks(700) {
            round.clear();
            values.iter().for_each(|&value| round.record(value));
            together.absorb(&round);
        }
        let once = samples_of(&all);
        assert_eq!(together.histogram(), once.histogram());
        let figures = |samples: &Samples| {
            [
                samples.count() as f64,
                samples.min(),
                samples.max(),
                samples.perftest_max(),
                samples.mean(),
                samples.stdev(),
            ]
        };
        assert_eq!(figures(&together), figures(&once));
    }

    #[test]
    fn no_samples_give_zeros_and_no_panic() {
        let samples = samples_of(&[]);
        let figures = [
            samples.min(),
            samples.max(),
            samples.mean(),
            samples.stdev(),
            samples.quantile(0.99),
        ];
        assert_eq!(figures, [0.0; 5]);
    }

    proptest! {
        #[test]
        fn figures_equal_those_of_all_values_kept(
            values in proptest::collection::vec(1u64..50_000_000, 1..2000),
            share in 0.0..=1.0f64,
        ) {
            let samples = samples_of(&values);
            let mut sorted = values.clone();
            sorted.sort_unstable();
            let stdev = brute_stdev(&values);
            prop_assert!((samples.stdev() - stdev).abs() <= 1e-9 * stdev.max(1.0));
            prop_assert_eq!(samples.min(), sorted[0] as f64 / 1000.0);
            prop_assert_eq!(samples.max(), sorted[sorted.len() - 1] as f64 / 1000.0);
            // The smallest value that at least this share does not exceed. At a
            // boundary the product may round either way, so both neighbours are right.
            let rank = share * sorted.len() as f64;
            let low = sorted[((rank - 1e-6).ceil().max(1.0) as usize) - 1] as f64 / 1000.0;
            let high = sorted[((rank + 1e-6).ceil().max(1.0) as usize).min(sorted.len()) - 1] as f64 / 1000.0;
            let quantile = samples.quantile(share);
            prop_assert!(quantile >= low * 0.999 - 0.001 && quantile <= high * 1.001 + 0.001,
                "{} for {} not in {}..{}", quantile, share, low, high);
        }
    }
}
