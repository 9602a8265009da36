//! Output: what all commands have in common, and the table and files of `lat`.
//!
//! ```text
//! conditions run distribution   what a result consists of: where it was measured, and the times
//! document                  the keys of every JSON file
//! reliability               whether the results can be relied on; --strict
//! files csv svg hgrm hlog   the result files; CSV, plots, HdrHistogram's text and log
//! progress                  rows and a progress bar during a run
//! table layers histogram json   output of lat
//! columns fit               tables and text of 80 columns
//! ```

mod arrival;
pub(crate) mod columns;
mod conditions;
mod csv;
mod distribution;
pub(crate) mod document;
mod files;
pub(crate) mod fit;
mod hgrm;
mod histogram;
mod hlog;
mod json;
pub(crate) mod layers;
mod progress;
pub(crate) mod reliability;
mod run;
mod svg;
mod table;

pub(crate) use arrival::{Arrival, Method};
pub(crate) use conditions::{Conditions, DeviceFacts, Goal, head, pinned};
pub(crate) use distribution::Distribution;
pub(crate) use files::Files;
pub(crate) use json::text as json;
pub(crate) use progress::Progress;
pub(crate) use reliability::Reliability;
pub(crate) use run::{ClockFacts, RunConditions};
pub(crate) use table::{Columns, NOTE, RATES_NOTE, header, rows};

use crate::noise::{Noise, Problem, Waiting};
use crate::options::{Api, Wait};
use crate::stats::Samples;
use crate::stats::pace::Pace;

/// The result of one size and interface.
pub(crate) struct Outcome {
    /// Message size in bytes.
    pub(crate) size: u32,
    /// The interface.
    pub(crate) api: Api,
    /// Round trips; in an open loop, response times.
    pub(crate) times: Distribution,
    /// The rest of an open loop; none in a closed one.
    pub(crate) open: Option<Open>,
    /// What disturbed the measuring thread in all rounds.
    pub(crate) noise: Noise,
    /// Whether the received bytes were compared with those sent.
    pub(crate) verified: bool,
}

/// What an open loop has beside response times.
pub(crate) struct Open {
    /// Requested messages per second.
    pub(crate) rate: f64,
    pub(crate) service: Distribution,
    pub(crate) pace: Pace,
}

impl Open {
    /// Returns why the response times are unreliable, if the sender fell behind.
    fn behind(&self) -> Option<Problem> {
        let pace = &self.pace;
        pace.fell_behind(self.rate).then(|| Problem {
            kind: "behind",
            reason: format!(
                "the sender FELL BEHIND: {:.0} of {:.0} messages per second, {} of {} not sent, {:.3} ms late at most; so response times grow with the length of the run",
                pace.achieved(),
                self.rate,
                pace.due - pace.sent,
                pace.due,
                pace.longest_lag as f64 / 1e6
            ),
            remedy: "lower --rate, or allow more messages in flight with -t",
        })
    }
}

impl Outcome {
    /// Returns the messages per second; none in a closed loop.
    fn rate(&self) -> Option<f64> {
        self.open.as_ref().map(|open| open.rate)
    }

    /// Returns whether the result can be relied on.
    pub(crate) fn reliability(&self, conditions: &Conditions) -> Reliability<'_> {
        let waiting = match conditions.wait {
            Some(Wait::Adaptive | Wait::Block) if self.api != Api::Engine => Waiting::Sleeps,
            _ => Waiting::Spins,
        };
        let mut case = format!("{} bytes, api {}", self.size, self.api.name());
        if let Some(open) = &self.open {
            case += &format!(", {}/s", open.rate);
        }
        let mut judged = Reliability::of(case, &self.noise, "the measuring thread", waiting);
        judged.extend(self.open.as_ref().and_then(Open::behind));
        judged
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
