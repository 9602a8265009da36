//! The histogram as text: bars over logarithmic buckets, with percentiles beside
//! them.
//!
//! The bulk (up to 99 %, or less if that is far from the median) has twelve rows
//! of equal width on the logarithmic scale. In the tail the widths double, so
//! that a sample of a thousand times the median adds ten rows and does not
//! flatten the bulk.

use super::conditions::Conditions;
use super::outcome::Outcome;
use crate::report::fit::flow;
use crate::report::percentiles;
use crate::stats::Samples;

const BULK_ROWS: i32 = 12;
const BAR_WIDTH: usize = 24;
/// Marks that do not fit beside their row are below its bar.
const INDENT: usize = 25;
/// Least ratio of a row's ends: about the resolution of the histogram.
const FINEST: f64 = 1.002;

/// A row: the samples above `low` and up to `high`, in microseconds.
struct Row {
    low: f64,
    high: f64,
    count: u64,
}

/// Returns the histogram of one size as text.
pub(super) fn text(outcome: &Outcome, conditions: &Conditions) -> String {
    draw(
        &outcome.times.samples,
        conditions.reported_name(),
        has_unicode_locale(),
    )
}

/// Returns whether the locale has block characters.
fn has_unicode_locale() -> bool {
    ["LC_ALL", "LC_CTYPE", "LANG"]
        .into_iter()
        .filter_map(|name| std::env::var(name).ok())
        .find(|value| !value.is_empty())
        .is_some_and(|value| {
            let value = value.to_ascii_lowercase();
            value.contains("utf-8") || value.contains("utf8")
        })
}

/// Returns the text, empty without samples. `what` is what the values are.
fn draw(samples: &Samples, what: &str, unicode: bool) -> String {
    if samples.count() == 0 {
        return String::new();
    }
    let rows = rows(samples);
    let most = rows.iter().map(|row| row.count).max().unwrap_or(1).max(1);
    let marks: Vec<(f64, &str)> = percentiles(samples)
        .map(|(_, name, value)| (value, name))
        .chain([(samples.max(), "max")])
        .collect();
    let mut out = format!(" {what}, usec; samples: {}\n", samples.count());
    let mut skipped = false;
    for (index, row) in rows.iter().enumerate() {
        if row.count == 0 {
            if !skipped {
                out.push_str("          ...\n");
            }
            skipped = true;
            continue;
        }
        skipped = false;
        let share = row.count as f64 / samples.count() as f64 * 100.0;
        let drawn = format!(
            " {:>10.3} .. {:<10.3} {} {:>7.3} % {:>8}",
            row.low,
            row.high,
            bar(row.count, most, unicode),
            share,
            row.count
        );
        // A mark is beside the first row that reaches it, or beside the last row.
        let here = marks.iter().filter(|&&(value, _)| {
            (index == 0 || value > row.low) && (value <= row.high || index + 1 == rows.len())
        });
        let mark = if unicode { "◄" } else { "<" };
        let names = here
            .enumerate()
            .map(|(number, &(value, name))| match number {
                0 => format!("  {mark} {name} = {value:.3}"),
                _ => format!(", {name} = {value:.3}"),
            });
        out += &flow([drawn].into_iter().chain(names), INDENT);
        out.push('\n');
    }
    out
}

/// Returns the rows over the whole range, with their counts.
fn rows(samples: &Samples) -> Vec<Row> {
    // Histogram values are whole nanoseconds; the first row begins below the smallest.
    let start = (samples.min() - 0.001).max(0.001);
    let bulk_end = bulk_end(samples).max(start * FINEST);
    let ratio = (bulk_end / start)
        .powf(1.0 / f64::from(BULK_ROWS))
        .max(FINEST);
    let mut rows = Vec::new();
    let mut low = start;
    let mut step = ratio;
    while rows.is_empty() || low < samples.max() {
        let high = low * step;
        rows.push(Row {
            low,
            high,
            count: 0,
        });
        low = high;
        if low >= bulk_end * 0.999_999 {
            step = (step * step).min(2.0);
        }
    }
    for value in samples.histogram().iter_recorded() {
        let microseconds = value.value_iterated_to() as f64 / 1000.0;
        let index = rows
            .partition_point(|row| row.high < microseconds)
            .min(rows.len() - 1);
        rows[index].count += value.count_since_last_iteration();
    }
    rows
}

/// Returns the upper end of the bulk, which is near the median.
fn bulk_end(samples: &Samples) -> f64 {
    const NEAR: f64 = 4.0;
    let median = samples.quantile(0.5);
    [0.99, 0.95, 0.9, 0.75]
        .into_iter()
        .map(|share| samples.quantile(share))
        .find(|&value| value <= median * NEAR)
        .unwrap_or(median)
}

/// Returns a bar of a length in proportion to its count, at least one eighth of
/// a character.
fn bar(count: u64, most: u64, unicode: bool) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (count as f64 / most as f64 * (BAR_WIDTH * 8) as f64)
        .round()
        .max(1.0) as usize;
    let drawn = if unicode {
        "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
    } else {
        "#".repeat(eighths.div_ceil(8))
    };
    format!("{drawn:<BAR_WIDTH$}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::stats::Reported;
    use core::iter::repeat_n;
    use proptest::prelude::*;

    fn samples_of(values: impl IntoIterator<Item = u64>) -> Samples {
        let mut samples = Samples::new(&Clock::monotonic(), Reported::FullRoundTrip);
        values.into_iter().for_each(|value| samples.record(value));
        samples
    }

    #[test]
    fn every_row_fits_a_terminal() {
        let values = (1..=200_000u64)
            .map(|i| i * i / 7)
            .chain(repeat_n(9_999_999_999, 90_000));
        crate::report::fit::assert_fits(&draw(&samples_of(values), "response time", true));
        // All percentiles are beside one row.
        let equal = draw(
            &samples_of(repeat_n(123_456_789, 2_000_000)),
            "response time",
            false,
        );
        crate::report::fit::assert_fits(&equal);
    }

    #[test]
    fn one_far_sample_does_not_flatten_the_bulk() {
        let bulk = (0..10_000u64).map(|i| 1000 + i % 300);
        let picture = draw(
            &samples_of(bulk.chain([1_500_000])),
            "half round trip",
            false,
        );
        let bars = picture.lines().filter(|line| line.contains('#')).count();
        assert!(bars >= 10, "{picture}");
        assert!(picture.lines().count() < 35, "{picture}");
        assert!(picture.contains("max = 1500.000"), "{picture}");
    }

    #[test]
    fn a_fat_tail_does_not_flatten_the_bulk() {
        let bulk = (0..8000u64).map(|i| 1000 + i % 300);
        let picture = draw(
            &samples_of(bulk.chain([70_000; 2000])),
            "half round trip",
            false,
        );
        let bars = picture.lines().filter(|line| line.contains("###")).count();
        assert!(bars >= 8, "{picture}");
    }

    #[test]
    fn every_percentile_is_marked_once() {
        let picture = draw(&samples_of((1..=200_000).map(|i| i * 10)), "x", true);
        for mark in [
            " 50 % =",
            " 90 % =",
            " 99 % =",
            " 99.9 % =",
            " 99.99 % =",
            " max =",
        ] {
            assert_eq!(picture.matches(mark).count(), 1, "{mark}\n{picture}");
        }
    }

    #[test]
    fn equal_samples_have_one_row_and_no_samples_none() {
        assert!(draw(&samples_of([5000; 100]), "x", false).contains("100.000 %"));
        assert_eq!(draw(&samples_of([]), "x", false), "");
    }

    proptest! {
        #[test]
        fn every_sample_is_in_one_row(values in proptest::collection::vec(1u64..100_000_000_000, 1..300)) {
            let samples = samples_of(values);
            let drawn: u64 = rows(&samples).iter().map(|row| row.count).sum();
            prop_assert_eq!(drawn, samples.count());
            prop_assert!(draw(&samples, "x", true).lines().count() < 70);
        }
    }
}
