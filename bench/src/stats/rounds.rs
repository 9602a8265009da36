//! Statistics of a few values, one per round or section: median, quartiles, and
//! confidence intervals.
//!
//! The intervals follow from the order of the values alone, so they hold for
//! any distribution: latencies are not normally distributed. They assume that
//! rounds are independent, and they know nothing of what differs between two
//! runs (memory layout, other programs).

use serde::Serialize;

/// The probability that an interval misses the true value is at most this.
const ERROR: f64 = 0.05;
/// A distribution in five figures.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Summary {
    pub(crate) median: f64,
    pub(crate) first_quartile: f64,
    pub(crate) third_quartile: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Summary {
    /// Returns `None` without values.
    pub(crate) fn of(values: &[f64]) -> Option<Self> {
        let sorted = sorted(values);
        let at = |share: f64| sorted[((sorted.len() - 1) as f64 * share).round() as usize];
        (!sorted.is_empty()).then(|| Self {
            median: middle(&sorted),
            first_quartile: at(0.25),
            third_quartile: at(0.75),
            min: at(0.0),
            max: at(1.0),
        })
    }

    /// Returns half the interquartile range.
    pub(crate) fn spread(&self) -> f64 {
        (self.third_quartile - self.first_quartile) / 2.0
    }
}

/// Returns the median: the middle value, or the mean of the middle two; 0
/// without values.
pub(crate) fn median(values: &[f64]) -> f64 {
    middle(&sorted(values))
}

pub(super) fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

fn middle(sorted: &[f64]) -> f64 {
    match sorted.len() {
        0 => 0.0,
        count if count % 2 == 1 => sorted[count / 2],
        count => f64::midpoint(sorted[count / 2 - 1], sorted[count / 2]),
    }
}

/// A confidence interval of at least 95 %.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Interval {
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Interval {
    /// Returns whether a difference with this interval can be zero.
    pub(crate) fn contains_zero(&self) -> bool {
        self.low <= 0.0 && self.high >= 0.0
    }

    /// Returns the interval from the `rank`-th value to the `rank`-th from the end.
    pub(super) fn between(sorted: &[f64], rank: usize) -> Option<Self> {
        let low = *sorted.get(rank.checked_sub(1)?)?;
        let high = *sorted.get(sorted.len().checked_sub(rank)?)?;
        Some(Self { low, high })
    }
}

/// Returns the confidence interval of the median, from the number of values
/// that are below it: a binomial distribution. `None` with fewer than six
/// values, whose whole range has less than 95 %.
pub(crate) fn median_interval(values: &[f64]) -> Option<Interval> {
    let count = values.len();
    let mut term = 0.5f64.powi(i32::try_from(count).ok()?);
    let weights = (0..count).map(|below| {
        let weight = term;
        term *= (count - below) as f64 / (below + 1) as f64;
        weight
    });
    Interval::between(&sorted(values), largest_rank(weights))
}

/// Returns the largest rank for which both tails together have at most [`ERROR`].
/// `weights` are the probabilities of 0, 1, 2, … values below.
pub(super) fn largest_rank(weights: impl Iterator<Item = f64>) -> usize {
    let mut tail = 0.0;
    weights
        .take_while(|weight| {
            tail += weight;
            2.0 * tail <= ERROR
        })
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upto(count: u32) -> Vec<f64> {
        (1..=count).map(f64::from).collect()
    }

    #[test]
    fn the_median_is_the_middle_value_or_the_mean_of_two() {
        assert_eq!(median(&[]), 0.0);
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
    }

    #[test]
    fn quartiles_and_spread_are_computed_from_the_values() {
        let figure = Summary::of(&[5.0, 1.0, 3.0, 2.0, 4.0]).unwrap();
        assert_eq!((figure.min, figure.median, figure.max), (1.0, 3.0, 5.0));
        assert_eq!((figure.first_quartile, figure.third_quartile), (2.0, 4.0));
        assert_eq!(figure.spread(), 1.0);
        assert_eq!(Summary::of(&[]), None);
    }

    /// The ranks of published tables of the sign test.
    #[test]
    fn the_interval_of_a_median_has_the_ranks_of_the_sign_test() {
        let interval = |count| median_interval(&upto(count)).map(|it| (it.low, it.high));
        assert_eq!(interval(0), None);
        assert_eq!(interval(5), None);
        assert_eq!(interval(6), Some((1.0, 6.0)));
        assert_eq!(interval(10), Some((2.0, 9.0)));
        assert_eq!(interval(20), Some((6.0, 15.0)));
        let (low, high) = interval(1000).unwrap();
        assert!(
            (468.0..=470.0).contains(&low) && low + high == 1001.0,
            "{low}"
        );
    }
}
