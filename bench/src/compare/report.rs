//! Output of `compare`: text and JSON.

use std::fmt::Write;

use serde::Serialize;

use super::ours::Ours;
use super::{perftest, ucx};
use crate::host::Host;
use crate::options::Operation;
use crate::output::counted;
use crate::report::columns::{figure, table};
use crate::report::document::{document, object};
use crate::report::fit::fit;
use crate::report::{DeviceFacts, head};
use crate::stats::rounds::{Interval, Summary, median, median_interval};

/// Name and version of the schema.
const SCHEMA: &str = "dat-bench/compare/2";

/// One run of the other program.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Theirs {
    Perftest(perftest::Run),
    UcxPerftest(ucx::Run),
}

impl Theirs {
    fn typical(&self) -> f64 {
        match self {
            Self::Perftest(run) => run.typical,
            Self::UcxPerftest(run) => run.typical,
        }
    }

    fn perftest(&self) -> Option<&perftest::Run> {
        match self {
            Self::Perftest(run) => Some(run),
            Self::UcxPerftest(_) => None,
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Perftest(_) => "perftest",
            Self::UcxPerftest(_) => "ucx_perftest",
        }
    }
}

/// One run of each program.
#[derive(Serialize)]
pub(super) struct Pair {
    #[serde(flatten)]
    pub(super) theirs: Theirs,
    #[serde(rename = "dat_bench")]
    pub(super) ours: Ours,
}

/// The conditions of a run.
#[derive(Serialize)]
pub(super) struct Conditions {
    pub(super) host: Host,
    pub(super) device: DeviceFacts,
    /// perftest's program, or the command line of ucx_perftest.
    pub(super) program: String,
    pub(super) operation: Operation,
    pub(super) bytes: u32,
    pub(super) iterations: u32,
    /// Pairs without a figure of perftest, which printed inf.
    pub(super) pairs_left_out: u32,
}

/// Returns a figure of every pair.
fn each(pairs: &[Pair], figure: impl Fn(&Pair) -> f64) -> Vec<f64> {
    pairs.iter().map(figure).collect()
}

/// Returns dat-bench's median relative to the other program's, of every pair.
fn ratios(pairs: &[Pair]) -> Vec<f64> {
    each(pairs, |pair| pair.ours.typical / pair.theirs.typical())
}

fn is_measurable(interval: Interval) -> bool {
    interval.low > 1.0 || interval.high < 1.0
}

pub(super) fn text(conditions: &Conditions, pairs: &[Pair]) -> String {
    let rest = format!(
        "{} of {}; {} of runs in turns, {} each, two processes on this host",
        conditions.operation.name(),
        counted(conditions.bytes, "byte"),
        counted(pairs.len() as u64, "pair"),
        counted(conditions.iterations, "iteration")
    );
    let mut out = head(&conditions.device, &conditions.host, &rest);
    // Writing to a String cannot fail.
    let other = pairs.first().map_or("", |pair| pair.theirs.name());
    // The program without its arguments.
    let program = conditions.program.split(' ').next().unwrap_or_default();
    let row = |name: &str, values: Vec<f64>| {
        let summary = Summary::of(&values);
        let figures = summary.map_or([0.0; 3], |it| [it.median, it.min, it.max]);
        let cells = figures.map(|it| figure(Some(it), 3));
        [name.to_owned()].into_iter().chain(cells).collect()
    };
    let rows = [
        row(program, each(pairs, |it| it.theirs.typical())),
        row("dat-bench lat", each(pairs, |it| it.ours.typical)),
    ];
    let names = "t_typical[usec]|median|least|most";
    let _ = writeln!(out, "\n{} (over the pairs)", table(1, names, &rows));
    let ratios = ratios(pairs);
    let verdict = match median_interval(&ratios) {
        None => "six pairs or more have a confidence interval".to_owned(),
        Some(it) => format!(
            "{:.3} to {:.3} with 95 % confidence{}",
            it.low,
            it.high,
            if is_measurable(it) {
                ""
            } else {
                ": no difference measurable"
            }
        ),
    };
    let _ = writeln!(
        out,
        " dat-bench relative to {other}: {:.3} ({verdict})",
        median(&ratios)
    );
    let hidden: Vec<_> = pairs
        .iter()
        .filter_map(|pair| pair.theirs.perftest())
        .collect();
    let of = |figure: fn(&perftest::Run) -> f64| {
        median(&hidden.iter().map(|run| figure(run)).collect::<Vec<_>>())
    };
    if hidden.is_empty() {
        let _ = writeln!(
            out,
            "\n the other program ran as: {}\n its figure is the median of its last 2048 samples",
            conditions.program
        );
    } else {
        let _ = writeln!(
            out,
            "\n what perftest's table hides, from the samples that it prints with -U (medians over the pairs)\n  \
         t_stdev : {:.3} in its table, {:.3} of its samples\n  \
         t_max   : {:.3} in its table, {:.3} the largest sample",
            of(|it| it.stdev),
            of(|it| it.true_stdev),
            of(|it| it.max),
            of(|it| it.true_max),
        );
    }
    if conditions.pairs_left_out > 0 {
        let _ = writeln!(
            out,
            "\n {} more pairs are left out: perftest found no processor frequency, as on a busy host, \
             and printed inf",
            conditions.pairs_left_out
        );
    }
    let unreliable: Vec<_> = pairs
        .iter()
        .filter_map(|pair| pair.ours.unreliable.first())
        .collect();
    if let Some(first) = unreliable.first() {
        let _ = writeln!(
            out,
            "\n UNRELIABLE: {} of {} of dat-bench, the first because {first}; {other} does not tell",
            unreliable.len(),
            counted(pairs.len() as u64, "run")
        );
    }
    fit(&out)
}

/// Returns the JSON document.
pub(super) fn json(conditions: &Conditions, pairs: &[Pair]) -> String {
    let ratios = ratios(pairs);
    let interval = median_interval(&ratios);
    let body = object! {
        conditions: conditions,
        ratio: median(&ratios),
        ratio_interval: interval,
        measurable: interval.map(is_measurable),
        pairs: pairs,
    };
    document(SCHEMA, &conditions.device, body)
}
