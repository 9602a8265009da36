//! Output of `bw` and `rate`: the lines above the table, the table with perftest's
//! columns, and JSON.

use std::fmt;

use serde::Serialize;

use super::options::Throughput;
use super::outcome::{Outcome, average, busy, cpu};
use super::plan::Plan;
use crate::exchange::Transfer;
use crate::output::counted;
use crate::report::RunConditions;
use crate::report::document::{document, object};
use crate::report::fit::{flow, ruled};

/// Name and version of the schema. Version 2 has more operations.
const SCHEMA: &str = "dat-bench/bw/2";

/// perftest's MB: 2^20 bytes.
const MEBIBYTE: f64 = (1 << 20) as f64;
/// 10^9 bits, in bytes.
const GIGABIT: f64 = 125e6;

/// What is the same for all sizes of a run.
pub(super) struct Conditions {
    pub(super) command: Throughput,
    pub(super) run: RunConditions,
    pub(super) both: bool,
    pub(super) endpoints: u32,
    pub(super) list: u32,
    /// Requests that share a completion, for the smallest size.
    pub(super) moderation: u32,
    pub(super) gigabits: bool,
}

impl Conditions {
    /// `run` are those of every run with two sides.
    pub(super) fn of(plan: &Plan, run: RunConditions) -> Self {
        let moderation = |&size| plan.args.moderation(size).min(run.tx_depth);
        Self {
            command: plan.what,
            both: plan.args.both,
            endpoints: plan.args.endpoints,
            list: plan.args.list,
            moderation: plan.common.amount.sizes.first().map_or(1, moderation),
            gigabits: plan.args.gigabits,
            run,
        }
    }

    /// Returns the unit of bandwidth in the table, and its bytes per second.
    fn unit(&self) -> (&'static str, f64) {
        match self.gigabits {
            true => ("Gb/sec", GIGABIT),
            false => ("MiB/sec", MEBIBYTE),
        }
    }
}

/// The lines above the table.
impl fmt::Display for Conditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let run = &self.run;
        writeln!(f, " {}", run.device.emulation_note())?;
        let way = match (self.both, run.operation) {
            (true, _) => "both ways at once; figures are sums of both",
            (false, it) if it.fetches() => "one way, to the reading side",
            (false, _) => "one way",
        };
        writeln!(f, " {}, {way}, {}", run.operation.name(), run.sides())?;
        write!(f, "{}{}", run.device_line(), run.api_lines(""))?;
        writeln!(
            f,
            " queues   : {} per side, {}; lists of {}, one completion for {}, {}",
            counted(self.endpoints, "endpoint"),
            run.depths(),
            self.list,
            self.moderation,
            run.inline()
        )?;
        writeln!(
            f,
            " run      : {} after {} warm-up messages per size and endpoint; {} rounds",
            run.goal, run.warmup, run.rounds
        )?;
        f.write_str(&run.message_line())?;
        f.write_str(&run.host_lines())
    }
}

/// Returns the lines of a row.
fn line(cells: [&str; 9]) -> String {
    /// Widths of the columns; words are aligned to the left.
    const WIDTHS: [usize; 8] = [10, 12, 18, 21, 15, 9, 10, 24];
    /// The lines of a row after its first one begin below the second column.
    const INDENT: usize = WIDTHS[0] + 1;
    let numbers = cells.iter().zip(WIDTHS);
    let mut cells: Vec<_> = numbers
        .map(|(cell, width)| format!(" {cell:>width$}"))
        .chain([format!("  {}", cells[8])])
        .collect();
    cells.retain(|cell| !cell.trim().is_empty());
    flow(cells, INDENT)
}

/// Returns the names of the columns between two rules.
pub(super) fn header(conditions: &Conditions) -> String {
    let (unit, _) = conditions.unit();
    let names = line([
        "#bytes",
        "#iterations",
        &format!("BW peak[{unit}]"),
        &format!("BW average[{unit}]"),
        "MsgRate[Mpps]",
        "CPU[ns]",
        "busy[ns]",
        &format!("95% median[{unit}]"),
        if conditions.run.has_several_apis() {
            "api"
        } else {
            ""
        },
    ]);
    ruled(&names)
}

/// Returns the rows of one size, one per interface.
pub(super) fn rows(outcomes: &[Outcome], conditions: &Conditions) -> String {
    let rows: Vec<_> = outcomes.iter().map(|it| row(it, conditions)).collect();
    rows.join("\n")
}

fn row(outcome: &Outcome, conditions: &Conditions) -> String {
    let (_, bytes) = conditions.unit();
    let bandwidth = |rate: f64| format!("{:.2}", outcome.bytes(rate) / bytes);
    let interval = outcome.interval().map_or("-".to_owned(), |it| {
        format!("{:.2}..{:.2}", it.low / bytes, it.high / bytes)
    });
    let client = |of: fn(&Transfer) -> f64| format!("{:.0}", outcome.sides.first().map_or(0.0, of));
    line([
        &outcome.size.to_string(),
        &outcome.messages().to_string(),
        &outcome.peak_rate().map_or("-".to_owned(), bandwidth),
        &bandwidth(outcome.rate()),
        &format!("{:.6}", outcome.rate() / 1e6),
        &client(cpu),
        &client(busy),
        &interval,
        match conditions.run.has_several_apis() {
            true => outcome.api.name(),
            false => "",
        },
    ])
}

/// Returns the explanation of the columns.
pub(super) fn note(conditions: &Conditions) -> String {
    let unit = match conditions.gigabits {
        true => "Gb/sec: 10^9 bits per second",
        false => "MiB/sec: 2^20 bytes per second (older versions of perftest write MB/sec)",
    };
    let both = match conditions.run.loopback {
        true => ", with the work of both sides",
        false => "",
    };
    format!(
        " {unit}; Mpps: 10^6 messages per second\n BW peak: from some post to some completion of a round; BW average: all bytes by all time\n CPU: processor time of the client's thread for each message that it has sent{both}; busy: the same without polls that found nothing, at most\n 95% median: confidence interval of the median of the rounds; an average outside of it is that of disturbed rounds\n -: too few rounds, or not measured"
    )
}

/// Returns the JSON document.
pub(super) fn json(conditions: &Conditions, outcomes: &[Outcome], complete: bool) -> String {
    let run = &conditions.run;
    let body = object! {
        host: &run.host,
        device: &run.device,
        run: object! {
            command: conditions.command,
            #[serde(flatten)]
            common: run,
            bidirectional: conditions.both,
            endpoints: conditions.endpoints,
            post_list: conditions.list,
            cq_moderation: conditions.moderation,
            warmup_messages: run.warmup,
        },
        complete: complete,
        results: outcomes.iter().map(|it| entry(it, run.verified)).collect::<Vec<_>>(),
    };
    document(SCHEMA, &run.device, body)
}

/// Returns the results of one case.
fn entry(outcome: &Outcome, verified: bool) -> impl Serialize {
    let rate = outcome.rate();
    let sides = outcome.sides.iter().map(|side| {
        object! {
            messages: side.messages,
            seconds: side.picoseconds as f64 / 1e12,
            messages_per_second: average(side),
            cpu_nanoseconds_per_message: cpu(side),
            busy_nanoseconds_per_message: busy(side),
        }
    });
    object! {
        bytes: outcome.size,
        api: outcome.api,
        iterations: outcome.messages(),
        bw_peak_bytes_per_second: outcome.peak_rate().map(|rate| outcome.bytes(rate)),
        bw_average_bytes_per_second: outcome.bytes(rate),
        messages_per_second: rate,
        round_bytes_per_second: outcome.round_bytes(),
        round_median_interval_bytes_per_second: outcome.interval(),
        sides: sides.collect::<Vec<_>>(),
        payload_verified: verified,
        #[serde(flatten)]
        reliability: outcome.reliability(),
    }
}
