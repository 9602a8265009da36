//! Output of `wake`: table and JSON.

use std::fmt::Write;

use dat_api::safe::WaitPolicy;
use serde::Serialize;

use super::case::Cpus;
use super::outcome::{Outcome, find};
use crate::cli::Rate;
use crate::host::Host;
use crate::report::document::document;
use crate::report::{DeviceFacts, Distribution, Figures, Reliability, head, pinned, reliability};
use crate::stats::rounds::median;

/// Name and version of the schema.
/// The histogram of version 1 was a list; that of version 2 is an object, as in
/// `lat`, and its percentiles without enough samples are null.
const SCHEMA: &str = "dat-bench/wake/2";

/// The conditions of a run.
#[derive(Serialize)]
pub(super) struct Conditions {
    pub(super) host: Host,
    pub(super) device: DeviceFacts,
    pub(super) rounds: u32,
    /// Time of one case in a round.
    pub(super) seconds: f64,
    pub(super) cpus: Cpus,
    pub(super) clock: &'static str,
}

impl Conditions {
    /// Returns where a latency begins and ends.
    pub(super) fn latency_definition(&self) -> &'static str {
        match self.device.emulated_fabric {
            Some(_) => {
                "from just before the NIC, stepped by the sender, writes the completion until the waiter has the event"
            }
            None => {
                "from just before the message is posted until the waiter has the event, including the network"
            }
        }
    }
}

/// Returns the text.
pub(super) fn text(conditions: &Conditions, outcomes: &[Outcome]) -> String {
    let place = format!(
        "waiter {}, sender {}",
        pinned(conditions.cpus.waiter),
        pinned(conditions.cpus.sender)
    );
    let mut out = head(&conditions.device, &conditions.host, &place);
    // Writing to a String cannot fail.
    let _ = writeln!(out, " latency: {}", conditions.latency_definition());
    let _ = writeln!(
        out,
        " 50 %: median of the medians of {} rounds of {} s; CPU: time of the waiting thread, medians of the rounds; counters: sums of all rounds; -: too few samples\n due 50 %, due 99 %: response times [us], from the moment at which a message was due\n",
        conditions.rounds, conditions.seconds
    );
    let _ = writeln!(
        out,
        " {:>9} {:<17} {:>8} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>10} {:>7} {:>8} {:>8} {:>8} {:>8} {:>7} {:>7}",
        "rate [/s]",
        "wait",
        "messages",
        "50 % [us]",
        "90 % [us]",
        "99 % [us]",
        "max [us]",
        "due 50 %",
        "due 99 %",
        "CPU [us/m]",
        "CPU [%]",
        "spins",
        "hits",
        "blocks",
        "spurious",
        "refused",
        "late"
    );
    let figure = |value: Option<f64>| value.map_or("-".to_owned(), |it| format!("{it:.2}"));
    for outcome in outcomes {
        let _ = writeln!(
            out,
            " {:>9} {:<17} {:>8} {:>9.2} {:>9} {:>9} {:>9.1} {:>9} {:>9} {:>10.2} {:>7.2} {:>8} {:>8} {:>8} {:>8} {:>7} {:>7}",
            outcome.rate.to_string(),
            outcome.policy.to_string(),
            outcome.times.samples.count(),
            outcome.times.median_of_rounds(),
            figure(outcome.times.samples.percentile(0.9)),
            figure(outcome.times.samples.percentile(0.99)),
            outcome.times.samples.max(),
            figure(
                outcome
                    .response
                    .as_ref()
                    .map(Distribution::median_of_rounds)
            ),
            figure(
                outcome
                    .response
                    .as_ref()
                    .and_then(|it| it.samples.percentile(0.99))
            ),
            outcome.cpu(),
            outcome.share() * 100.0,
            outcome.waits.spins,
            outcome.waits.hits,
            outcome.waits.blocks,
            outcome.waits.spurious,
            outcome.refused,
            outcome.late,
        );
    }
    let compared: Vec<_> = outcomes
        .iter()
        .filter(|it| matches!(it.policy, WaitPolicy::Adaptive { .. }))
        .map(|it| (it, Compared::of(it, outcomes)))
        .filter(|(_, it)| it.median_to_poll.is_some() || it.cpu_to_block.is_some())
        .collect();
    if !compared.is_empty() {
        let _ = writeln!(
            out,
            "\n adaptive relative to poll and block at the same rate: medians of the rounds' ratios"
        );
        let _ = writeln!(
            out,
            " {:>9} {:<17} {:>21} {:>18}",
            "rate [/s]", "wait", "median, poll's is 1", "CPU, block's is 1"
        );
        let ratio = |value: Option<f64>| value.map_or("-".to_owned(), |it| format!("{it:.3}"));
        for (outcome, compared) in compared {
            let _ = writeln!(
                out,
                " {:>9} {:<17} {:>21} {:>18}",
                outcome.rate.to_string(),
                outcome.policy.to_string(),
                ratio(compared.median_to_poll),
                ratio(compared.cpu_to_block),
            );
        }
    }
    let judged: Vec<_> = outcomes.iter().map(Outcome::reliability).collect();
    out + "\n" + &reliability::text(&judged)
}

/// A case relative to poll and block at the same rate. The ratio is computed per
/// round, so that disturbances of a round cancel; the median is reported.
#[derive(Clone, Copy, Serialize)]
struct Compared {
    median_to_poll: Option<f64>,
    cpu_to_block: Option<f64>,
}

impl Compared {
    fn of(outcome: &Outcome, outcomes: &[Outcome]) -> Self {
        let beside = |policy| find(outcomes, outcome.rate, policy);
        let ratio = |mine: &[f64], others: &[f64]| {
            let rounds = mine.iter().zip(others).filter(|&(_, &other)| other > 0.0);
            let ratios: Vec<f64> = rounds.map(|(mine, other)| mine / other).collect();
            (!ratios.is_empty()).then(|| median(&ratios))
        };
        Self {
            median_to_poll: beside(WaitPolicy::Poll)
                .and_then(|poll| ratio(&outcome.times.round_medians, &poll.times.round_medians)),
            cpu_to_block: beside(WaitPolicy::Block)
                .and_then(|block| ratio(&outcome.cpu, &block.cpu)),
        }
    }
}

#[derive(Serialize)]
struct Body<'a> {
    conditions: &'a Conditions,
    latency_is: &'static str,
    results: Vec<Entry<'a>>,
}

#[derive(Serialize)]
struct Entry<'a> {
    policy: String,
    /// Messages per second; none if each message was sent when the previous one was
    /// taken.
    rate: Option<f64>,
    messages: u64,
    latency_microseconds: Latency,
    /// Times from the moment at which a message was due; none in a closed loop.
    response_microseconds: Option<Latency>,
    response: Option<Figures<'a>>,
    /// CPU time of the waiting thread, medians of the rounds.
    cpu_microseconds_per_message: f64,
    cpu_share: f64,
    counters: Counted,
    /// Messages sent more than one interval after they were due.
    late: u64,
    /// CPU time per message of each round, microseconds.
    round_cpu: Vec<f64>,
    beside: Compared,
    #[serde(flatten)]
    figures: Figures<'a>,
    #[serde(flatten)]
    reliability: Reliability<'a>,
}

#[derive(Serialize)]
struct Latency {
    /// The median of the rounds' medians.
    median: f64,
    min: f64,
    #[serde(rename = "p90")]
    p90: Option<f64>,
    #[serde(rename = "p99")]
    p99: Option<f64>,
    #[serde(rename = "p99.9")]
    p99_9: Option<f64>,
    max: f64,
    mean: f64,
}

/// Sums of all rounds.
#[derive(Serialize)]
struct Counted {
    spins: u64,
    hits: u64,
    blocks: u64,
    spurious: u64,
    refused_posts: u64,
}

/// Returns the JSON document.
pub(super) fn json(conditions: &Conditions, outcomes: &[Outcome]) -> String {
    let body = Body {
        latency_is: conditions.latency_definition(),
        conditions,
        results: outcomes.iter().map(|it| entry(it, outcomes)).collect(),
    };
    document(SCHEMA, &conditions.device, body)
}

fn latency(of: &Distribution) -> Latency {
    let samples = &of.samples;
    Latency {
        median: of.median_of_rounds(),
        min: samples.min(),
        p90: samples.percentile(0.9),
        p99: samples.percentile(0.99),
        p99_9: samples.percentile(0.999),
        max: samples.max(),
        mean: samples.mean(),
    }
}

fn entry<'a>(outcome: &'a Outcome, all: &[Outcome]) -> Entry<'a> {
    Entry {
        policy: outcome.policy.to_string(),
        rate: match outcome.rate {
            Rate::PerSecond(rate) => Some(rate),
            Rate::Closed => None,
        },
        messages: outcome.times.samples.count(),
        latency_microseconds: latency(&outcome.times),
        response_microseconds: outcome.response.as_ref().map(latency),
        response: outcome.response.as_ref().map(Distribution::figures),
        cpu_microseconds_per_message: outcome.cpu(),
        cpu_share: outcome.share(),
        counters: Counted {
            spins: outcome.waits.spins,
            hits: outcome.waits.hits,
            blocks: outcome.waits.blocks,
            spurious: outcome.waits.spurious,
            refused_posts: outcome.refused,
        },
        late: outcome.late,
        round_cpu: outcome.cpu.clone(),
        beside: Compared::of(outcome, all),
        figures: outcome.times.figures(),
        reliability: outcome.reliability(),
    }
}
