//! The table: perftest's columns in perftest's order, then 99.99 % and the
//! maximum. The standard deviation is exact below a microsecond too.

use super::{Outcome, layers};
use crate::stats::Samples;

const COLUMNS: [&str; 11] = [
    "#bytes",
    "#iterations",
    "t_min[usec]",
    "t_max[usec]",
    "t_typical[usec]",
    "t_avg[usec]",
    "t_stdev[usec]",
    "99%[usec]",
    "99.9%[usec]",
    "99.99%[usec]",
    "max[usec]",
];

/// Least width of a column.
const NARROW: usize = 10;

fn line<T: AsRef<str>>(cells: &[T]) -> String {
    cells
        .iter()
        .zip(COLUMNS)
        .map(|(cell, column)| {
            format!(
                " {:>width$}",
                cell.as_ref(),
                width = column.len().max(NARROW)
            )
        })
        .collect()
}

/// Returns the names of the columns between two rules. If interfaces are
/// compared, the columns of [`layers`] follow.
pub(crate) fn header(compares: bool) -> String {
    let mut names = line(&COLUMNS);
    if compares {
        names += &layers::line(layers::COLUMNS);
    }
    let rule = "-".repeat(names.len() + 1);
    format!("{rule}\n{names}\n{rule}")
}

/// Returns the rows of one size, one per interface.
pub(crate) fn rows(outcomes: &[Outcome], compares: bool) -> String {
    let rows: Vec<String> = outcomes
        .iter()
        .enumerate()
        .map(|(at, outcome)| {
            let mut row = row(outcome.size, &outcome.times.samples);
            if compares {
                let below = at.checked_sub(1).map(|below| &outcomes[below]);
                row += &layers::cells(outcome, below);
            }
            row
        })
        .collect();
    rows.join("\n")
}

/// Returns a row. `t_max` is perftest's, without the two largest samples; `max`
/// is the largest.
fn row(size: u32, samples: &Samples) -> String {
    let figures = [
        samples.min(),
        samples.perftest_max(),
        samples.quantile(0.5),
        samples.mean(),
        samples.stdev(),
        samples.quantile(0.99),
        samples.quantile(0.999),
        samples.quantile(0.9999),
        samples.max(),
    ];
    let mut cells = vec![size.to_string(), samples.count().to_string()];
    cells.extend(figures.map(|figure| format!("{figure:.3}")));
    line(&cells)
}

/// The explanation of the columns.
pub(crate) const NOTE: &str =
    " t_typical: the median; t_max: the largest but for two, as in perftest; max: the largest";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::stats::Reported;

    fn samples() -> Samples {
        let mut samples = Samples::new(&Clock::monotonic(), Reported::HalfRoundTrip);
        for ticks in 1..=10_000u64 {
            samples.record(2000 + 2 * ticks);
        }
        samples
    }

    #[test]
    fn the_first_columns_are_perftests() {
        let header = header(false);
        let names: Vec<_> = header.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(names[..7], COLUMNS[..7]);
        assert_eq!(names[9..], ["99.99%[usec]", "max[usec]"]);
    }

    #[test]
    fn a_row_has_one_aligned_figure_per_column() {
        let row = row(64, &samples());
        let cells: Vec<_> = row.split_whitespace().collect();
        assert_eq!(cells.len(), COLUMNS.len());
        assert_eq!(cells[..4], ["64", "10000", "1.001", "10.998"]);
        assert_eq!(cells[10], "11.000");
        assert_eq!(row.len(), line(&COLUMNS).len());
        let typical: f64 = cells[4].parse().unwrap();
        assert!((typical - 6.0).abs() < 0.01, "{typical}");
        // A uniform distribution over 10 µs has the deviation 10/√12 µs.
        let stdev: f64 = cells[6].parse().unwrap();
        assert!((stdev - 10.0 / 12f64.sqrt()).abs() < 0.01, "{stdev}");
    }
}
