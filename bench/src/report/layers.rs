//! What an interface adds to the one before it in `--api`.
//!
//! The interfaces take turns in rounds. In each round the difference of the two
//! medians is computed, which were measured one after the other. So a machine
//! that becomes faster or slower during the run does not change the result. The
//! median and the range of these differences are reported.

use serde::Serialize;

use super::Outcome;
use crate::cli::Api;
use crate::stats::rounds::Summary;

/// The columns that follow those of the table.
pub(super) const COLUMNS: [&str; 3] = ["api", "adds[nsec]", "in rounds[nsec]"];

/// The explanation of the columns.
pub(crate) const NOTE: &str = " adds: the difference of an api's median and that of the api before it in --api, median over the rounds; in rounds: the range of these differences";

/// The difference between two interfaces, in reported nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Added {
    pub(super) bytes: u32,
    pub(super) api: Api,
    /// The interface before it.
    pub(super) over: Api,
    /// The median of the rounds' differences.
    pub(super) typical_nanoseconds: f64,
    /// The smallest of the rounds' differences.
    pub(super) least_nanoseconds: f64,
    /// The largest of the rounds' differences.
    pub(super) most_nanoseconds: f64,
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
    Some(Added {
        bytes: outcome.size,
        api: outcome.api,
        over: below.api,
        typical_nanoseconds: summary.median,
        least_nanoseconds: summary.min,
        most_nanoseconds: summary.max,
    })
}

/// Returns all differences of a run.
pub(super) fn all(outcomes: &[Outcome]) -> Vec<Added> {
    outcomes
        .windows(2)
        .filter(|pair| pair[0].size == pair[1].size)
        .filter_map(|pair| added(&pair[1], &pair[0]))
        .collect()
}

/// Returns the cells of one row.
pub(super) fn cells(outcome: &Outcome, below: Option<&Outcome>) -> String {
    let (adds, range) = match below.and_then(|below| added(outcome, below)) {
        Some(added) => (
            format!("{:+.0}", added.typical_nanoseconds),
            format!(
                "{:+.0}..{:+.0}",
                added.least_nanoseconds, added.most_nanoseconds
            ),
        ),
        None => ("-".into(), "-".into()),
    };
    line([outcome.api.name(), &adds, &range])
}

pub(super) fn line(cells: [&str; 3]) -> String {
    let [api, adds, range] = cells;
    format!("  {api:<6} {adds:>10} {range:>15}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::report::Distribution;
    use crate::stats::{Reported, Samples};

    fn outcome(api: Api, medians: &[f64]) -> Outcome {
        Outcome {
            size: 64,
            api,
            times: Distribution {
                samples: Samples::new(&Clock::monotonic(), Reported::HalfRoundTrip),
                round_medians: medians.to_vec(),
            },
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
        let below = outcome(Api::Engine, &[1.0]);
        let above = outcome(Api::C, &[1.25]);
        let (first, second) = (cells(&below, None), cells(&above, Some(&below)));
        assert_eq!(
            first.split_whitespace().collect::<Vec<_>>(),
            ["engine", "-", "-"]
        );
        assert_eq!(
            second.split_whitespace().collect::<Vec<_>>(),
            ["c", "+250", "+250..+250"]
        );
        assert_eq!(first.len(), line(COLUMNS).len());
        assert_eq!(second.len(), first.len());
    }
}
