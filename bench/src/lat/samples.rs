//! The measured messages one by one, as CSV (`--samples`).

use std::path::Path;

use super::outcome::Outcome;
use crate::output::{counted, is_stdout};

/// Returns the text of a file: a row per message.
pub(super) fn document(outcomes: &[Outcome]) -> String {
    let is_open = outcomes.iter().any(|outcome| outcome.open.is_some());
    let mut out = "time_us,round,size_bytes,api,".to_owned();
    out += match is_open {
        true => "rate_per_s,response_us,service_us\n",
        false => "latency_us\n",
    };
    for outcome in outcomes {
        let mut keys = format!("{},{}", outcome.size, outcome.api.name());
        if let Some(rate) = outcome.rate() {
            keys += &format!(",{rate}");
        }
        outcome.series.rows(&keys, is_open, &mut out);
    }
    out
}

/// Returns the line that says which messages the file has. `most` is the number of messages of
/// a round that it can have.
pub(super) fn note(path: &Path, outcomes: &[Outcome], most: u64) -> String {
    let each = outcomes.iter();
    let all: u64 = each.clone().map(|it| it.times.samples.count()).sum();
    let kept: u64 = each.map(|it| it.series.kept()).sum();
    let place = match is_stdout(path) {
        true => "standard output".to_owned(),
        false => path.display().to_string(),
    };
    match all - kept {
        0 => format!(" samples  : {} in {place}\n", counted(all, "message")),
        rest => format!(
            " samples  : {} of {all} in {place}: the first {most} of each round; the other {rest} are in the histogram only\n",
            counted(kept, "message")
        ),
    }
}
