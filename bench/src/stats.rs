//! Samples: an HDR histogram, and exact sums for the mean and the standard
//! deviation.
//!
//! Recording allocates nothing, so the measuring loops record directly. The
//! sums are integers in clock ticks, so the deviation has no rounding of the
//! samples and no cancellation.

pub(crate) mod pace;
mod reported;
pub(crate) mod rounds;
pub(crate) mod shift;
pub(crate) mod timeline;

use std::time::Duration;

use hdrhistogram::Histogram;

pub(crate) use reported::{Reported, supports};

use crate::clock::Clock;

/// The largest value of the histogram. Longer samples are recorded as this one
/// (minimum, maximum, mean and deviation remain exact).
const LONGEST: Duration = Duration::from_secs(60);
/// Significant decimal digits of the histogram: buckets of 0.1 % of the value.
const DIGITS: u8 = 3;
/// Number of largest samples that perftest's `t_max` leaves out.
const LEFT_OUT_BY_PERFTEST: usize = 2;

/// The samples of one message size and interface.
pub(crate) struct Samples {
    /// In reported nanoseconds.
    histogram: Histogram<u64>,
    reported: Reported,
    /// Reported nanoseconds per tick, as a fixed-point number with 32 fraction bits.
    scale: u64,
    nanoseconds_per_tick: f64,
    count: u64,
    sum: u128,
    sum_of_squares: u128,
    min: u64,
    /// The largest samples in ticks, in descending order.
    largest: [u64; LEFT_OUT_BY_PERFTEST + 1],
}

impl Samples {
    pub(crate) fn new(clock: &Clock, reported: Reported) -> Self {
        let nanoseconds_per_tick = clock.nanoseconds_per_tick() / reported.divisor();
        let longest = LONGEST.as_nanos() as u64;
        Self {
            histogram: Histogram::new_with_bounds(1, longest, DIGITS)
                .expect("the bounds are constants that the histogram accepts"),
            reported,
            scale: (nanoseconds_per_tick * (1u64 << 32) as f64).round() as u64,
            nanoseconds_per_tick,
            count: 0,
            sum: 0,
            sum_of_squares: 0,
            min: u64::MAX,
            largest: [0; LEFT_OUT_BY_PERFTEST + 1],
        }
    }

    /// Records one round trip, in clock ticks.
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

    /// Removes all samples.
    pub(crate) fn clear(&mut self) {
        self.histogram.reset();
        (self.count, self.sum, self.sum_of_squares) = (0, 0, 0);
        self.min = u64::MAX;
        self.largest = [0; LEFT_OUT_BY_PERFTEST + 1];
    }

    /// Adds the samples of `other`, which has the same clock and reports the same
    /// part of the round trip.
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

    pub(crate) fn reported(&self) -> Reported {
        self.reported
    }

    /// Returns the number of samples.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Returns the histogram of all samples, in reported nanoseconds.
    pub(crate) fn histogram(&self) -> &Histogram<u64> {
        &self.histogram
    }

    fn microseconds(&self, ticks: f64) -> f64 {
        ticks * self.nanoseconds_per_tick / 1000.0
    }

    /// Returns the smallest sample, exact, in microseconds.
    pub(crate) fn min(&self) -> f64 {
        if self.count == 0 {
            0.0
        } else {
            self.microseconds(self.min as f64)
        }
    }

    /// Returns the largest sample, exact, in microseconds.
    pub(crate) fn max(&self) -> f64 {
        self.microseconds(self.largest[0] as f64)
    }

    /// Returns perftest's `t_max` in microseconds: the third largest sample, or
    /// the largest if there are at most two.
    pub(crate) fn perftest_max(&self) -> f64 {
        if self.count > LEFT_OUT_BY_PERFTEST as u64 {
            self.microseconds(self.largest[LEFT_OUT_BY_PERFTEST] as f64)
        } else {
            self.max()
        }
    }

    /// Returns the mean in microseconds.
    pub(crate) fn mean(&self) -> f64 {
        if self.count == 0 {
            return 0.0;
        }
        self.microseconds(self.sum as f64 / self.count as f64)
    }

    /// Returns the standard deviation of the population, in microseconds.
    pub(crate) fn stdev(&self) -> f64 {
        if self.count == 0 {
            return 0.0;
        }
        // n·Σx² − (Σx)² in integers, unless that overflows: no cancellation.
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

    /// Returns the value that this share (0 to 1) of the samples does not exceed,
    /// in microseconds, with the histogram's three digits.
    pub(crate) fn quantile(&self, share: f64) -> f64 {
        if self.count == 0 {
            return 0.0;
        }
        // The histogram returns the upper end of a bucket, which may exceed all samples.
        (self.histogram.value_at_quantile(share) as f64 / 1000.0).min(self.max())
    }

    /// Returns the quantile if at least ten samples are above it.
    pub(crate) fn percentile(&self, share: f64) -> Option<f64> {
        supports(self.count, share).then(|| self.quantile(share))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Samples whose ticks are reported nanoseconds.
    fn samples_of(values: &[u64]) -> Samples {
        let mut samples = Samples::new(&Clock::monotonic(), Reported::FullRoundTrip);
        values.iter().for_each(|&value| samples.record(value));
        samples
    }

    /// The standard deviation by its definition, from all values, in microseconds.
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
    fn a_deviation_below_a_microsecond_is_not_rounded_to_zero() {
        // 0.9 to 1.7 µs: a deviation computed in whole microseconds would be 0.
        let values: Vec<u64> = (0..998).map(|i| 900 + i * 800 / 997).collect();
        let samples = samples_of(&values);
        assert!((samples.stdev() - brute_stdev(&values)).abs() < 1e-9);
        assert!(samples.stdev() > 0.2, "{}", samples.stdev());
    }

    #[test]
    fn send_and_write_report_half_of_the_round_trip() {
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
    fn perftests_maximum_leaves_out_the_two_largest_samples() {
        let samples = samples_of(&[5000, 1000, 9000, 2000, 9000, 3000]);
        assert_eq!(samples.max(), 9.0);
        assert_eq!(samples.perftest_max(), 5.0);
        assert_eq!(samples_of(&[1000, 2000]).perftest_max(), 2.0);
    }

    #[test]
    fn the_maximum_is_exact_beyond_the_histograms_range() {
        let samples = samples_of(&[1000, 3_600_000_000_000]);
        assert_eq!(samples.max(), 3.6e9);
        assert_eq!(samples.histogram().len(), 2);
    }

    #[test]
    fn absorbing_rounds_equals_recording_all_samples_at_once() {
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
    fn a_percentile_needs_ten_samples_above_it() {
        let upto = |count| samples_of(&(1..=count).collect::<Vec<_>>());
        for (share, least) in [(0.5, 20), (0.9, 100), (0.99, 1000), (0.999, 10_000)] {
            let (enough, too_few) = (upto(least), upto(least - 1));
            assert_eq!(enough.percentile(share), Some(enough.quantile(share)));
            assert_eq!(too_few.percentile(share), None, "{share}");
        }
        assert_eq!(samples_of(&[]).percentile(0.5), None);
    }

    #[test]
    fn without_samples_every_figure_is_zero() {
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
        fn figures_equal_those_computed_from_all_values(
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
            // boundary the product may round either way, so both neighbours are accepted.
            let rank = share * sorted.len() as f64;
            let low = sorted[((rank - 1e-6).ceil().max(1.0) as usize) - 1] as f64 / 1000.0;
            let high = sorted[((rank + 1e-6).ceil().max(1.0) as usize).min(sorted.len()) - 1] as f64 / 1000.0;
            let quantile = samples.quantile(share);
            prop_assert!(quantile >= low * 0.999 - 0.001 && quantile <= high * 1.001 + 0.001,
                "{} for {} not in {}..{}", quantile, share, low, high);
        }
    }
}
