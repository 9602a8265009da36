//! What one interface adds to the one below it.
//!
//! Interfaces are measured in turn, some rounds of each. What one adds is
//! taken round by round, as the difference of two medians that were measured
//! one right after the other, so that a machine that gets faster or slower
//! meanwhile does not count as a layer. Of these differences the median is
//! told, and how far they spread.

use serde::Serialize;

use super::Outcome;
use crate::cli::Api;

/// Columns beside those of the table.
pub(super) const COLUMNS: [&str; 3] = ["api", "adds[nsec]", "in rounds[nsec]"];

/// What the reader must know of them.
pub(crate) const NOTE: &str = " adds: what an api adds to the one before it in --api, the median over rounds of the difference of their medians; and the range of these differences";

/// A difference between two interfaces, in nanoseconds of what is reported.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Added {
    pub(super) bytes: u32,
    pub(super) api: Api,
    /// The interface that it is added to.
    pub(super) over: Api,
    /// The median of all rounds.
    pub(super) typical_nanoseconds: f64,
    /// The least of all rounds.
    pub(super) least_nanoseconds: f64,
    /// The most of all rounds.
    pub(super) most_nanoseconds: f64,
}

/// What an outcome adds to the one of the same size below it; nothing is known
/// without rounds.
pub(super) fn added(outcome: &Outcome, below: &Outcome) -> Option<Added> {
    let mut differences: Vec<f64> = outcome
        .round_medians
        .iter()
        .zip(&below.round_medians)
        .map(|(this, that)| (this - that) * 1000.0)
        .collect();
    differences.sort_by(f64::total_cmp);
    let (least, most) = (*differences.first()?, *differences.last()?);
    let (half, odd) = (differences.len() / 2, differences.len() % 2 == 1);
    let typical = if odd {
        differences[half]
    } else {
        f64::midpoint(differences[half - 1], differences[half])
    };
    Some(Added {
        bytes: outcome.size,
        api: outcome.api,
        over: below.api,
        typical_nanoseconds: typical,
        least_nanoseconds: least,
        most_nanoseconds: most,
    })
}

/// Every difference of a run.
pub(super) fn all(outcomes: &[Outcome]) -> Vec<Added> {
    outcomes
        .windows(2)
        .filter(|pair| pair[0].size == pair[1].size)
        .filter_map(|pair| added(&pair[1], &pair[0]))
        .collect()
}

/// The cells of an outcome.
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
    use crate::stats::{Reported, Samples};

    fn outcome(api: Api, medians: &[f64]) -> Outcome {
        Outcome {
            size: 64,
            api,
            samples: Samples::new(&Clock::monotonic(), Reported::HalfRoundTrip),
            round_medians: medians.to_vec(),
            verified: true,
        }
    }

    #[test]
    fn a_machine_that_changes_speed_does_not_count_as_a_layer() {
        // Twice as slow from the third round on; the layer adds 10 ns, then 20.
        let below = outcome(Api::Engine, &[1.0, 1.0, 2.0, 2.0, 2.0]);
        let above = outcome(Api::Rust, &[1.01, 1.01, 2.02, 2.02, 2.02]);
        let added = added(&above, &below).unwrap();
        assert!((added.typical_nanoseconds - 20.0).abs() < 1e-9, "{added:?}");
        assert!((added.least_nanoseconds - 10.0).abs() < 1e-9, "{added:?}");
        assert_eq!((added.api, added.over), (Api::Rust, Api::Engine));
    }

    #[test]
    fn of_an_even_number_of_rounds_the_middle_is_between_two() {
        let below = outcome(Api::Engine, &[1.0, 1.0]);
        let above = outcome(Api::Rust, &[1.01, 0.95]);
        let added = added(&above, &below).unwrap();
        assert!((added.typical_nanoseconds + 20.0).abs() < 1e-9, "{added:?}");
    }

    #[test]
    fn the_first_adds_to_nothing_and_cells_line_up() {
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
