//! Output of `bw` and `rate`: the lines above the table, the table with perftest's
//! columns, and JSON.

use std::fmt;

use serde::Serialize;

use super::options::{BwArgs, Throughput};
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
    pub(super) threads: u32,
    /// The CPUs of the threads, if they are pinned.
    pub(super) cpus: Vec<usize>,
}

impl Conditions {
    /// `run` are those of every run with two sides.
    pub(super) fn of(plan: &Plan, args: &BwArgs, run: RunConditions) -> Self {
        let moderation = |&size| plan.args.moderation(size).min(run.tx_depth);
        Self {
            command: plan.what,
            both: plan.args.both,
            endpoints: plan.args.endpoints,
            list: plan.args.list,
            moderation: plan.common.amount.sizes.first().map_or(1, moderation),
            gigabits: args.gigabits,
            threads: args.threads,
            cpus: args.run.cpu.clone(),
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
            " run      : {} after {} per size and endpoint; {}",
            run.goal,
            counted(run.warmup, "warm-up message"),
            counted(run.rounds, "round")
        )?;
        if self.threads > 1 {
            let cpus: Vec<_> = self.cpus.iter().map(usize::to_string).collect();
            let pinned = match cpus.is_empty() {
                true => "not pinned".to_owned(),
                false => format!("on CPUs {}", cpus.join(", ")),
            };
            writeln!(
                f,
                " threads  : {} per side, each with its own endpoints, {pinned}; figures are sums of all",
                self.threads
            )?;
        }
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
    let mut rows = Vec::new();
    for outcome in outcomes {
        rows.push(row(outcome, conditions));
        let threads = outcome.threads(conditions.both);
        if threads.len() > 1 {
            let thread = |(number, sides)| thread_row(number, sides, outcome, conditions);
            rows.extend(threads.into_iter().enumerate().map(thread));
        }
    }
    rows.join("\n")
}

fn row(outcome: &Outcome, conditions: &Conditions) -> String {
    let (_, bytes) = conditions.unit();
    let bandwidth = |rate: f64| format!("{:.2}", outcome.bytes(rate) / bytes);
    let interval = outcome.interval().map_or("-".to_owned(), |it| {
        format!("{:.2}..{:.2}", it.low / bytes, it.high / bytes)
    });
    let client = outcome.client(conditions.both);
    line([
        &outcome.size.to_string(),
        &outcome.messages().to_string(),
        &outcome.peak_rate().map_or("-".to_owned(), bandwidth),
        &bandwidth(outcome.rate()),
        &format!("{:.6}", outcome.rate() / 1e6),
        &format!("{:.0}", cpu(&client)),
        &format!("{:.0}", busy(&client)),
        &interval,
        match conditions.run.has_several_apis() {
            true => outcome.api.name(),
            false => "",
        },
    ])
}

/// Returns the row of a thread below that of all.
fn thread_row(
    number: usize,
    sides: &[Transfer],
    outcome: &Outcome,
    conditions: &Conditions,
) -> String {
    let (_, bytes) = conditions.unit();
    let rate: f64 = sides.iter().map(average).sum();
    let messages: u64 = sides.iter().map(|side| side.messages).sum();
    line([
        &format!("thread {number}"),
        &messages.to_string(),
        "-",
        &format!("{:.2}", outcome.bytes(rate) / bytes),
        &format!("{:.6}", rate / 1e6),
        &format!("{:.0}", cpu(&sides[0])),
        &format!("{:.0}", busy(&sides[0])),
        "-",
        "",
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
        " {unit}; Mpps: 10^6 messages per second\n BW peak: from some post to some completion of a round; BW average: all bytes by all time\n CPU: processor time of the client for each message that it has sent{both}; busy: the same without polls that found nothing, at most\n 95% median: confidence interval of the median of the rounds; an average outside of it is that of disturbed rounds\n -: too few rounds, or not measured"
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
            threads: conditions.threads,
            cpus: &conditions.cpus,
            post_list: conditions.list,
            cq_moderation: conditions.moderation,
            warmup_messages: run.warmup,
        },
        complete: complete,
        results: outcomes.iter().map(|it| entry(it, conditions)).collect::<Vec<_>>(),
    };
    document(SCHEMA, &run.device, body)
}

/// Returns the results of one case.
fn entry(outcome: &Outcome, conditions: &Conditions) -> impl Serialize {
    let rate = outcome.rate();
    let client = outcome.client(conditions.both);
    let of_a_thread = if conditions.both { 2 } else { 1 };
    let sides = outcome.sides.iter().enumerate().map(|(at, side)| {
        object! {
            side: if at % of_a_thread == 0 { "client" } else { "server" },
            thread: at / of_a_thread,
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
        cpu_nanoseconds_per_message: cpu(&client),
        busy_nanoseconds_per_message: busy(&client),
        sides: sides.collect::<Vec<_>>(),
        payload_verified: conditions.run.verified,
        #[serde(flatten)]
        reliability: outcome.reliability(),
    }
}
