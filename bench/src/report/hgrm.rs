//! HdrHistogram's percentile text (.hgrm), which its plotters read: value in
//! microseconds, percentile, cumulative count, 1/(1-percentile).

use std::fmt::Write;

use crate::stats::Samples;

/// Points per halving of the distance to 100 %, as in HdrHistogram's tools.
const TICKS_PER_HALF_DISTANCE: u32 = 5;

/// Returns the text of a file.
pub(crate) fn document(samples: &Samples) -> String {
    let histogram = samples.histogram();
    let mut out = format!(
        "{:>12} {:>14} {:>10} {:>14}\n\n",
        "Value", "Percentile", "TotalCount", "1/(1-Percentile)"
    );
    let mut total = 0;
    for point in histogram.iter_quantiles(TICKS_PER_HALF_DISTANCE) {
        total += point.count_since_last_iteration();
        let value = point.value_iterated_to() as f64 / 1000.0;
        let share = point.quantile_iterated_to();
        let _ = write!(out, "{value:>12.3} {share:>14.12} {total:>10}");
        // The last line has no fourth column, which would be infinite.
        if share < 1.0 {
            let _ = write!(out, " {:>14.2}", 1.0 / (1.0 - share));
        }
        out.push('\n');
    }
    let _ = writeln!(
        out,
        "#[Mean    = {:>12.3}, StdDeviation   = {:>12.3}]",
        samples.mean(),
        samples.stdev()
    );
    let _ = writeln!(
        out,
        "#[Max     = {:>12.3}, Total count    = {:>12}]",
        samples.max(),
        samples.count()
    );
    // HdrHistogram's sub-bucket count for three digits.
    let _ = writeln!(
        out,
        "#[Buckets = {:>12}, SubBuckets     = {:>12}]",
        histogram.buckets(),
        2048
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::stats::Reported;

    #[test]
    fn the_text_has_the_format_that_plotters_read() {
        let mut samples = Samples::new(&Clock::monotonic(), Reported::FullRoundTrip);
        (1..=1000u64).for_each(|value| samples.record(value * 1000));
        let text = document(&samples);
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[0].trim_start().starts_with("Value"));
        assert_eq!(lines[1], "");
        let points: Vec<Vec<f64>> = lines[2..lines.len() - 3]
            .iter()
            .map(|line| {
                line.split_whitespace()
                    .map(|cell| cell.parse().unwrap())
                    .collect()
            })
            .collect();
        assert!(
            points
                .windows(2)
                .all(|pair| pair[0][0] <= pair[1][0] && pair[0][1] <= pair[1][1])
        );
        let last = points.last().unwrap();
        assert_eq!((last.len(), last[1], last[2]), (3, 1.0, 1000.0));
        assert!(
            lines[lines.len() - 2]
                .contains("Max     =     1000.000, Total count    =         1000")
        );
    }
}
