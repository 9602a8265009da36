//! The table: perftest's columns in perftest's order, then 99.99 % and the
//! confidence interval of the median. The standard deviation is exact below a
//! microsecond too, and `t_max` is the largest sample.

use super::layers;
use super::outcome::Outcome;
use crate::report::Distribution;
use crate::report::fit::{flow, ruled};

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
    "95% typical[usec]",
];

/// Least width of a column.
const NARROW: usize = 10;

/// Indent of the lines of a row after its first one: they begin below the second
/// column.
const INDENT: usize = NARROW + 1;

/// Returns the cells of [`COLUMNS`].
fn cells<T: AsRef<str>>(texts: &[T]) -> Vec<String> {
    let cell = |(text, column): (&T, &str)| {
        let width = column.len().max(NARROW);
        format!(" {:>width$}", text.as_ref())
    };
    texts.iter().zip(COLUMNS).map(cell).collect()
}

/// The columns that follow those of [`COLUMNS`].
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Columns {
    /// Rates of an open loop.
    pub(super) rates: bool,
    /// Several interfaces: the columns of [`layers`].
    pub(super) apis: bool,
}

/// Returns the names of the columns between two rules.
pub(super) fn header(columns: Columns) -> String {
    let mut names = cells(&COLUMNS);
    if columns.rates {
        names.extend(paced(["rate[/s]", "sent[/s]", "late", "time"]));
    }
    if columns.apis {
        names.extend(layers::line(layers::COLUMNS));
    }
    ruled(&flow(names, INDENT))
}

fn paced([rate, sent, late, time]: [&str; 4]) -> [String; 4] {
    [
        format!("  {rate:>9}"),
        format!(" {sent:>9}"),
        format!(" {late:>7}"),
        format!("  {time:<8}"),
    ]
}

/// Returns the rows of one size and rate, one per interface; in an open loop two,
/// of response and service times.
pub(super) fn rows(outcomes: &[Outcome], columns: Columns) -> String {
    let mut rows = Vec::new();
    for (at, outcome) in outcomes.iter().enumerate() {
        let layers = |below: Option<&Outcome>| match columns.apis {
            true => layers::cells(outcome, below),
            false => Vec::new(),
        };
        let below = at.checked_sub(1).map(|below| &outcomes[below]);
        let mut first = row(outcome.size, &outcome.times);
        if let Some(open) = &outcome.open {
            let (rate, sent) = (open.rate.to_string(), open.pace.achieved());
            let late = open.pace.late.to_string();
            first.extend(paced([&rate, &format!("{sent:.0}"), &late, "response"]));
        }
        first.extend(layers(below));
        rows.push(flow(first, INDENT));
        if let Some(open) = &outcome.open {
            let mut second = row(outcome.size, &open.service);
            second.extend(paced([&open.rate.to_string(), "-", "-", "service"]));
            second.extend(layers(None));
            rows.push(flow(second, INDENT));
        }
    }
    rows.join("\n")
}

/// Returns a row. A percentile without enough samples, and an interval without
/// enough rounds, is a dash.
fn row(size: u32, times: &Distribution) -> Vec<String> {
    let samples = &times.samples;
    let figure = |value: Option<f64>| value.map_or("-".into(), |value| format!("{value:.3}"));
    let mut texts = vec![size.to_string(), samples.count().to_string()];
    texts.extend(
        [
            Some(samples.min()),
            Some(samples.max()),
            Some(samples.quantile(0.5)),
            Some(samples.mean()),
            Some(samples.stdev()),
            samples.percentile(0.99),
            samples.percentile(0.999),
            samples.percentile(0.9999),
        ]
        .map(figure),
    );
    let interval = times.median_interval();
    texts.push(interval.map_or("-".into(), |it| {
        // So that it fits its column.
        let digits = match it.high {
            high if high < 1e3 => 3,
            high if high < 1e5 => 1,
            _ => 0,
        };
        format!("{:.digits$}..{:.digits$}", it.low, it.high)
    }));
    cells(&texts)
}

/// The explanation of the columns.
pub(super) const NOTE: &str = " \
t_typical: the median; 95% typical: its confidence interval over the rounds
 t_max: the largest sample, which perftest leaves out with the second largest
 -: too few samples or rounds";

/// The explanation of the columns of an open loop.
pub(super) const RATES_NOTE: &str = " \
response: from due to answered; service: from sent to answered
 sent: messages per second that were sent
 late: messages that were sent when the next one was due already";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::lat::outcome::Open;
    use crate::noise::Noise;
    use crate::options::Api;
    use crate::report::Series;
    use crate::report::fit::assert_fits;
    use crate::stats::pace::Pace;
    use crate::stats::{Reported, Samples};

    fn times(count: u64, rounds: usize) -> Distribution {
        let mut samples = Samples::new(&Clock::monotonic(), Reported::HalfRoundTrip);
        for ticks in 1..=count {
            samples.record(2000 + 2 * ticks);
        }
        Distribution {
            samples,
            round_medians: (0..rounds).map(|round| 6.0 + round as f64).collect(),
        }
    }

    #[test]
    fn the_first_columns_are_perftests() {
        let header = header(Columns::default());
        let names = header
            .split_whitespace()
            .skip(1)
            .take(11)
            .collect::<Vec<_>>();
        assert_eq!(names[..3], ["#bytes", "#iterations", "t_min[usec]"]);
        assert!(header.contains("95% typical[usec]"), "{header}");
    }

    #[test]
    fn every_table_fits_a_terminal() {
        let outcome = |api| Outcome {
            size: 8 << 20,
            api,
            times: times(100_000, 10),
            open: Some(Open {
                rate: 1e7,
                service: times(100_000, 10),
                pace: Pace::default(),
            }),
            series: Series::default(),
            noise: Noise::default(),
            verified: true,
        };
        let outcomes = [outcome(Api::Engine), outcome(Api::Rust)];
        for (rates, apis) in [(false, false), (true, false), (false, true), (true, true)] {
            let columns = Columns { rates, apis };
            assert_fits(&header(columns));
            assert_fits(&rows(&outcomes, columns));
            // A name is above each figure.
            let names = header(columns);
            let names: Vec<&str> = names.lines().collect();
            let text = rows(&outcomes, columns);
            let row = text.lines().take(names.len() - 2);
            for (name, figures) in names[1..].iter().zip(row).take(2) {
                assert_eq!(name.len(), figures.len(), "{text}");
            }
        }
        for note in [NOTE, RATES_NOTE, layers::NOTE] {
            assert_fits(note);
        }
    }

    #[test]
    fn a_row_has_one_aligned_figure_per_column() {
        let row = row(64, &times(10_000, 10));
        let lengths = |cells: &[String]| cells.iter().map(String::len).collect::<Vec<_>>();
        assert_eq!(lengths(&row), lengths(&super::cells(&COLUMNS)));
        let cells: Vec<_> = row.iter().map(|cell| cell.trim()).collect();
        assert_eq!(cells.len(), COLUMNS.len());
        assert_eq!(cells[..4], ["64", "10000", "1.001", "11.000"]);
        assert_eq!(cells[9..], ["-", "7.000..14.000"]);
        let typical: f64 = cells[4].parse().unwrap();
        assert!((typical - 6.0).abs() < 0.01, "{typical}");
        // A uniform distribution over 10 µs has the deviation 10/√12 µs.
        let stdev: f64 = cells[6].parse().unwrap();
        assert!((stdev - 10.0 / 12f64.sqrt()).abs() < 0.01, "{stdev}");
    }

    #[test]
    fn figures_without_enough_samples_or_rounds_are_dashes() {
        let row = row(64, &times(100, 5));
        let cells: Vec<_> = row.iter().map(|cell| cell.trim()).collect();
        assert_eq!(cells[7..], ["-"; 4]);
    }
}
