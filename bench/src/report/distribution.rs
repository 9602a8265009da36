//! The measured times of one case: all samples, and the median of each round.

use serde::Serialize;

use crate::stats::Samples;
use crate::stats::rounds::{Interval, median, median_interval};

/// The times of one case in all rounds.
pub(crate) struct Distribution {
    /// The samples of all rounds.
    pub(crate) samples: Samples,
    /// The median of each round, in microseconds.
    pub(crate) round_medians: Vec<f64>,
}

impl Distribution {
    /// Begins with no round; `samples` are empty.
    pub(crate) fn new(samples: Samples) -> Self {
        Self {
            samples,
            round_medians: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, round: &Samples) {
        self.samples.absorb(round);
        self.round_medians.push(round.quantile(0.5));
    }

    /// Returns the median of the rounds' medians, in microseconds.
    pub(crate) fn median_of_rounds(&self) -> f64 {
        median(&self.round_medians)
    }

    /// Returns the confidence interval of the median over the rounds.
    pub(crate) fn median_interval(&self) -> Option<Interval> {
        median_interval(&self.round_medians)
    }

    /// Returns the figures for result files.
    pub(crate) fn figures(&self) -> Figures<'_> {
        let histogram = self.samples.histogram();
        Figures {
            round_medians: &self.round_medians,
            median_interval: self.median_interval(),
            percentiles: percentiles(&self.samples)
                .map(|(share, _, usec)| Percentile { share, usec })
                .collect(),
            histogram: Buckets {
                significant_digits: histogram.sigfig(),
                nanoseconds_and_count: histogram
                    .iter_recorded()
                    .map(|bucket| (bucket.value_iterated_to(), bucket.count_at_value()))
                    .collect(),
            },
        }
    }
}

/// The keys that every measured case has in result files.
#[derive(Serialize)]
pub(crate) struct Figures<'a> {
    /// The median of each round, microseconds.
    round_medians: &'a [f64],
    /// 95 % confidence interval of the median over the rounds, microseconds; none
    /// with fewer than six rounds.
    median_interval: Option<Interval>,
    percentiles: Vec<Percentile>,
    histogram: Buckets,
}

#[derive(Serialize)]
struct Percentile {
    share: f64,
    usec: f64,
}

/// The non-empty buckets: upper end in nanoseconds, and count.
#[derive(Serialize)]
struct Buckets {
    significant_digits: u8,
    nanoseconds_and_count: Vec<(u64, u64)>,
}

/// Reported quantiles (0 to 1) and their names.
const QUANTILES: [(f64, &str); 6] = [
    (0.5, "50 %"),
    (0.9, "90 %"),
    (0.99, "99 %"),
    (0.999, "99.9 %"),
    (0.9999, "99.99 %"),
    (0.999_99, "99.999 %"),
];

/// Returns the percentiles for which there are enough samples: share, name and
/// value in microseconds.
pub(crate) fn percentiles(samples: &Samples) -> impl Iterator<Item = (f64, &'static str, f64)> {
    QUANTILES
        .into_iter()
        .filter_map(|(share, name)| Some((share, name, samples.percentile(share)?)))
}
