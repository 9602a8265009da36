//! The latencies of a case over its time, and what disturbed it.

use serde_json::Value;

use super::case::{Case, Disturbance, Slot};
use crate::output::counted;

/// Adds the series of a case of `lat`; older files have none. What is incomplete, and times before
/// the case, are left out.
pub(super) fn add(case: &mut Case, series: &Value) {
    let list = |key: &str| series[key].as_array().into_iter().flatten();
    let time = |entry: &Value, key: &str| entry[key].as_f64().filter(|time| *time >= 0.0);
    let slot = |entry: &Value| {
        let begin = time(entry, "begin")?;
        Some(Slot {
            begin,
            end: begin,
            samples: entry["samples"].as_u64()?,
            typical: time(entry, "t_typical")?,
            p99: time(entry, "p99"),
            max: time(entry, "t_max")?,
        })
    };
    case.series = list("slots").filter_map(slot).collect();
    case.series.sort_by(|a, b| a.begin.total_cmp(&b.begin));
    let mut rounds: Vec<(f64, f64)> = list("rounds")
        .filter_map(|round| Some((time(round, "begin")?, time(round, "end")?)))
        .collect();
    rounds.sort_by(|a, b| a.0.total_cmp(&b.0));
    for at in 0..case.series.len() {
        let next = case.series.get(at + 1).map(|slot| slot.begin);
        let slot = &mut case.series[at];
        let round = rounds.partition_point(|round| round.0 <= slot.begin);
        let end = round.checked_sub(1).map(|round| rounds[round].1);
        let ends = [next, end].into_iter().flatten();
        slot.end = ends.reduce(f64::min).unwrap_or(0.0).max(slot.begin);
    }
    let disturbance = |(number, entry): (usize, &Value)| {
        let what = disturbances(entry)?;
        let begin = time(entry, "begin")?;
        Some(Disturbance {
            begin,
            end: time(entry, "end")?.max(begin),
            what: format!("round {}: {what}", number + 1),
        })
    };
    let rounds = list("rounds").enumerate();
    case.disturbances = rounds.filter_map(disturbance).collect();
}

/// Returns what disturbed a round, if something did.
fn disturbances(round: &Value) -> Option<String> {
    let count = |key: &str| round[key].as_u64().filter(|count| *count > 0);
    let milliseconds = |nanoseconds: u64| nanoseconds as f64 / 1e6;
    let longest = count("longest_gap_nanoseconds").map_or(0.0, |it| it as f64 / 1e3);
    let all = [
        count("involuntary_switches").map(|it| counted(it, "involuntary switch")),
        count("migrations").map(|_| "ended on another CPU".to_owned()),
        count("stolen_nanoseconds")
            .map(|it| format!("{} ms stolen by the hypervisor", milliseconds(it))),
        count("gaps").map(|it| {
            format!(
                "before it {} of the core, up to {longest:.1} us",
                counted(it, "gap")
            )
        }),
    ];
    let all: Vec<String> = all.into_iter().flatten().collect();
    (!all.is_empty()).then(|| all.join(", "))
}
