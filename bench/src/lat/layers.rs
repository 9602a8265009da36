//! What an interface adds to the one before it in `--api`.
//!
//! The interfaces take turns in rounds. In each round the difference of the two
//! medians is computed, which were measured one after the other. So a machine
//! that becomes faster or slower during the run does not change the result. The
//! median of these differences is reported, with its confidence interval. If the
//! interval contains zero, the run has not shown a difference.

use serde::Serialize;

use super::outcome::Outcome;
use crate::options::Api;
use crate::stats::rounds::{Interval, Summary, median_interval};

/// The columns that follow those of the table.
pub(super) const COLUMNS: [&str; 3] = ["api", "adds[nsec]", "95% adds[nsec]"];

/// The explanation of the columns.
pub(super) const NOTE: &str = " \
adds: the difference of an api's median and that of the api before it in --api,
 median over the rounds; 95% adds: its confidence interval";

/// The difference between two interfaces, in reported nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Added {
    pub(super) bytes: u32,
    /// Messages per second; none in a closed loop.
    pub(super) rate_per_second: Option<f64>,
    pub(super) api: Api,
    /// The interface before it.
    pub(super) over: Api,
    /// The median of the rounds' differences.
    pub(super) typical_nanoseconds: f64,
    /// The smallest of the rounds' differences.
    pub(super) least_nanoseconds: f64,
    /// The largest of the rounds' differences.
    pub(super) most_nanoseconds: f64,
    /// 95 % confidence interval of the median; none with fewer than six rounds.
    pub(super) interval_nanoseconds: Option<Interval>,
    /// Whether the interval excludes zero; none without an interval.
    pub(super) measurable: Option<bool>,
}

/// Returns what `outcome` adds to `below`, which has the same size; `None`
/// without rounds.
pub(super) fn added(outcome: &Outcome, below: &Outcome) -> Option<Added> {
    let medians = |outcome: &Outcome| outcome.times.round_medians.clone();
    let differences: Vec<f64> = medians(outcome)
        .iter()
        .zip(medians(below))
        .map(|(this, that)| (this - that) * 1000.0)
        .collect();
    let summary = Summary::of(&differences)?;
    let interval = median_interval(&differences);
    Some(Added {
        bytes: outcome.size,
        rate_per_second: outcome.rate(),
        api: outcome.api,
        over: below.api,
        typical_nanoseconds: summary.median,
        least_nanoseconds: summary.min,
        most_nanoseconds: summary.max,
        interval_nanoseconds: interval,
        measurable: interval.map(|it| !it.contains_zero()),
    })
}

/// Returns all differences of a run.
pub(super) fn all(outcomes: &[Outcome]) -> Vec<Added> {
    outcomes
        .windows(2)
        .filter(|pair| pair[0].size == pair[1].size && pair[0].rate() == pair[1].rate())
        .filter_map(|pair| added(&pair[1], &pair[0]))
        .collect()
}

/// Returns the cells of one row.
pub(super) fn cells(outcome: &Outcome, below: Option<&Outcome>) -> Vec<String> {
    let api = outcome.api.name();
    let Some(added) = below.and_then(|below| added(outcome, below)) else {
        return line([api, "-", "-"]).into();
    };
    let adds = format!("{:+.0}", added.typical_nanoseconds);
    let range = added
        .interval_nanoseconds
        .map_or("-".into(), |it| format!("{:+.0}..{:+.0}", it.low, it.high));
    let verdict = match added.measurable {
        Some(true) => "",
        Some(false) => "  no difference measurable",
        None => "  too few rounds to tell",
    };
    let mut cells = Vec::from(line([api, &adds, &range]));
    cells.push(verdict.to_owned());
    cells
}

pub(super) fn line([api, adds, range]: [&str; 3]) -> [String; 3] {
    [
        format!("  {api:<6}"),
        format!(" {adds:>10}"),
        format!(" {range:>15}"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::noise::Noise;
    use crate::report::{Distribution, Series};
    use crate::stats::{Reported, Samples};

    fn outcome(api: Api, medians: &[f64]) -> Outcome {
        Outcome {
            series: Series::default(),
            size: 64,
            api,
            times: Distribution {
                samples: Samples::new(&Clock::monotonic(), Reported::HalfRoundTrip),
                round_medians: medians.to_vec(),
            },
            open: None,
            noise: Noise::default(),
            verified: true,
        }
    }

    #[test]
    fn a_machine_that_becomes_slower_does_not_change_what_a_layer_adds() {
        // Twice as slow from the third round on; the layer adds 10 ns, then 20.
        let below = outcome(Api::Engine, &[1.0, 1.0, 2.0, 2.0, 2.0]);
        let above = outcome(Api::Rust, &[1.01, 1.01, 2.02, 2.02, 2.02]);
        let added = added(&above, &below).unwrap();
        assert!((added.typical_nanoseconds - 20.0).abs() < 1e-9, "{added:?}");
        assert!((added.least_nanoseconds - 10.0).abs() < 1e-9, "{added:?}");
        assert_eq!((added.api, added.over), (Api::Rust, Api::Engine));
    }

    #[test]
    fn the_median_of_an_even_number_of_rounds_is_the_mean_of_the_middle_two() {
        let below = outcome(Api::Engine, &[1.0, 1.0]);
        let above = outcome(Api::Rust, &[1.01, 0.95]);
        let added = added(&above, &below).unwrap();
        assert!((added.typical_nanoseconds + 20.0).abs() < 1e-9, "{added:?}");
    }

    #[test]
    fn the_first_interface_adds_nothing_and_columns_are_aligned() {
        let below = outcome(Api::Engine, &[1.0; 10]);
        let above = outcome(Api::C, &[1.25; 10]);
        let (first, second) = (cells(&below, None), cells(&above, Some(&below)));
        let (first, second) = (first.concat(), second.concat());
        assert_eq!(
            first.split_whitespace().collect::<Vec<_>>(),
            ["engine", "-", "-"]
        );
        assert_eq!(
            second.split_whitespace().collect::<Vec<_>>(),
            ["c", "+250", "+250..+250"]
        );
        assert_eq!(first.len(), line(COLUMNS).concat().len());
        assert_eq!(second.len(), first.len());
    }

    #[test]
    fn a_difference_below_its_spread_is_not_measurable() {
        let below = outcome(Api::Engine, &[1.0; 10]);
        let noisy = [0.9, 1.1, 0.95, 1.05, 1.0, 1.01, 0.99, 1.02, 0.98, 1.03];
        let above = outcome(Api::C, &noisy);
        assert!(
            cells(&above, Some(&below))
                .concat()
                .ends_with("no difference measurable")
        );
        assert_eq!(added(&above, &below).unwrap().measurable, Some(false));
        // All rounds on one side: measurable, however small.
        let slower = outcome(Api::C, &noisy.map(|median| median + 0.2));
        assert_eq!(added(&slower, &below).unwrap().measurable, Some(true));
        let few = outcome(Api::C, &noisy[..5]);
        assert!(
            cells(&few, Some(&below))
                .concat()
                .ends_with("too few rounds to tell")
        );
    }
}
