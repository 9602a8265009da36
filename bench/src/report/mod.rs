//! Output: what all commands have in common, and the table and files of `lat`.
//!
//! ```text
//! conditions distribution   what a result consists of: where it was measured, and the times
//! document                  the keys of every JSON file
//! reliability               whether the results can be relied on; --strict
//! files hgrm                the files of latencies; HdrHistogram's text
//! table layers histogram json   output of lat
//! ```

mod conditions;
mod distribution;
pub(crate) mod document;
mod files;
mod hgrm;
mod histogram;
mod json;
pub(crate) mod layers;
pub(crate) mod reliability;
mod table;

pub(crate) use conditions::{Conditions, DeviceFacts, Goal, head, pinned};
pub(crate) use distribution::{Distribution, Figures};
pub(crate) use files::Files;
pub(crate) use json::text as json;
pub(crate) use reliability::Reliability;
pub(crate) use table::{NOTE, header, rows};

use crate::cli::{Api, Wait};
use crate::noise::{Noise, Waiting};
use crate::stats::Samples;

/// The result of one size and interface.
pub(crate) struct Outcome {
    /// Message size in bytes.
    pub(crate) size: u32,
    /// The interface.
    pub(crate) api: Api,
    pub(crate) times: Distribution,
    /// What disturbed the measuring thread in all rounds.
    pub(crate) noise: Noise,
    /// Whether the received bytes were compared with those sent.
    pub(crate) verified: bool,
}

impl Outcome {
    /// Returns whether the result can be relied on.
    pub(crate) fn reliability(&self, conditions: &Conditions) -> Reliability<'_> {
        let waiting = match conditions.wait {
            Some(Wait::Adaptive | Wait::Block) if self.api != Api::Engine => Waiting::Sleeps,
            _ => Waiting::Spins,
        };
        let case = format!("{} bytes, api {}", self.size, self.api.name());
        Reliability::of(case, &self.noise, "the measuring thread", waiting)
    }
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
fn percentiles(samples: &Samples) -> impl Iterator<Item = (f64, &'static str, f64)> {
    QUANTILES
        .into_iter()
        .filter_map(|(share, name)| Some((share, name, samples.percentile(share)?)))
}

/// Returns the histogram of one size as text.
pub(crate) fn histogram_text(outcome: &Outcome, conditions: &Conditions) -> String {
    histogram::draw(
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
