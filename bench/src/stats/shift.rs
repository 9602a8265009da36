//! The shift between two groups of values, such as the rounds of two runs.

use super::rounds::{Interval, largest_rank, sorted};

/// With more values than this in both groups, the distribution is approximated.
const MOST_EXACT: usize = 50;

/// Returns the confidence interval of the shift from `before` to `after`, from
/// all differences (Hodges and Lehmann) and the distribution of the Mann-Whitney
/// statistic. `None` with too few values.
pub(crate) fn shift_interval(before: &[f64], after: &[f64]) -> Option<Interval> {
    let differences: Vec<f64> = after
        .iter()
        .flat_map(|after| before.iter().map(move |before| after - before))
        .collect();
    let (n, m) = (before.len(), after.len());
    let rank = if n + m <= MOST_EXACT {
        largest_rank(mann_whitney(n, m).into_iter())
    } else {
        let (n, m) = (n as f64, m as f64);
        let deviation = (n * m * (n + m + 1.0) / 12.0).sqrt();
        // 1.96 deviations of a normal distribution have 95 %.
        (n * m / 2.0 - 1.96 * deviation).floor().max(0.0) as usize
    };
    Interval::between(&sorted(&differences), rank)
}

/// Returns the probabilities of the Mann-Whitney statistic 0, 1, … n·m for two
/// groups of one distribution: the coefficients of the Gaussian binomial
/// polynomial, ∏ (1 − qᵐ⁺ⁱ) / (1 − qⁱ), by their sum.
fn mann_whitney(n: usize, m: usize) -> Vec<f64> {
    let mut counts = vec![0.0; n * m + 1];
    counts[0] = 1.0;
    for i in 1..=n {
        for at in (m + i..counts.len()).rev() {
            counts[at] -= counts[at - m - i];
        }
        for at in i..counts.len() {
            counts[at] += counts[at - i];
        }
    }
    let all: f64 = counts.iter().sum();
    counts.iter().map(|count| count / all).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upto(count: u32) -> Vec<f64> {
        (1..=count).map(f64::from).collect()
    }

    /// The critical values of published tables of the Mann-Whitney test: 2 for
    /// groups of 5, 8 for 7 each, 23 for 10 each.
    #[test]
    fn the_interval_of_a_shift_has_the_critical_values_of_mann_and_whitney() {
        for (count, critical) in [(5, 2), (7, 8), (10, 23)] {
            let rank = largest_rank(mann_whitney(count, count).into_iter());
            assert_eq!(rank, critical + 1, "{count}");
        }
        assert_eq!(shift_interval(&upto(3), &upto(3)), None);
        assert_eq!(shift_interval(&[], &upto(9)), None);
    }

    #[test]
    fn the_approximation_agrees_with_the_exact_distribution() {
        let exact = largest_rank(mann_whitney(25, 25).into_iter());
        let spread = (25.0f64 * 25.0 * 51.0 / 12.0).sqrt();
        let approximated = (25.0 * 25.0 / 2.0 - 1.96 * spread).floor() as usize;
        assert!(exact.abs_diff(approximated) <= 1, "{exact}, {approximated}");
    }

    #[test]
    fn a_shift_beyond_the_spread_excludes_zero_and_equal_groups_do_not() {
        let before = upto(10);
        let shifted: Vec<f64> = before.iter().map(|value| value + 20.0).collect();
        let interval = shift_interval(&before, &shifted).unwrap();
        assert!(interval.low > 10.0 && interval.high < 30.0, "{interval:?}");
        assert!(shift_interval(&before, &before).unwrap().contains_zero());
        let many: Vec<f64> = (0..200).map(f64::from).collect();
        assert!(shift_interval(&many, &many).unwrap().contains_zero());
    }
}
