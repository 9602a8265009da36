//! Output of `wake`: table and JSON.

use std::fmt::Write;

use dat_api::safe::WaitPolicy;
use serde::Serialize;

use super::case::Cpus;
use super::outcome::{Outcome, find};
use crate::host::Host;
use crate::output::counted;
use crate::report::columns::{figure, table};
use crate::report::document::{document, object};
use crate::report::fit::fit;
use crate::report::{DeviceFacts, Distribution, head, pinned, reliability};
use crate::stats::rounds::median;
use crate::wake::options::Rate;

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
        " 50 %: median of the medians of {} of {} s; -: too few samples\n \
         due: response times, from the moment at which a message was due\n \
         CPU: time of the waiting thread, medians of the rounds; us/m: microseconds per message\n \
         spins to late: counters, sums of all rounds\n",
        counted(conditions.rounds, "round"),
        conditions.seconds
    );
    out += &times(outcomes);
    let rows: Vec<_> = outcomes
        .iter()
        .filter(|it| matches!(it.policy, WaitPolicy::Adaptive { .. }))
        .map(|it| (it, Compared::of(it, outcomes)))
        .filter(|(_, it)| it.median_to_poll.is_some() || it.cpu_to_block.is_some())
        .map(|(it, compared)| {
            let ratios = [compared.median_to_poll, compared.cpu_to_block];
            row(it, ratios.map(|ratio| figure(ratio, 3)))
        })
        .collect();
    if !rows.is_empty() {
        out += "\n adaptive relative to poll and block at the same rate: medians of the rounds' ratios\n";
        let names = "rate [/s]|wait|median, poll's is 1|CPU, block's is 1";
        out += &table(2, names, &rows);
    }
    let judged: Vec<_> = outcomes.iter().map(Outcome::reliability).collect();
    fit(&out) + "\n" + &reliability::text(&judged)
}

/// Returns the row of a case.
fn row<const N: usize>(outcome: &Outcome, cells: [String; N]) -> Vec<String> {
    let keys = [outcome.rate.to_string(), outcome.policy.to_string()];
    keys.into_iter().chain(cells).collect()
}

/// Returns the table of latencies, response times, CPU time and counters.
fn times(outcomes: &[Outcome]) -> String {
    const NAMES: &str = "rate [/s]|wait|messages|50 % [us]|90 % [us]|99 % [us]|max [us]|\
        due 50 % [us]|due 99 % [us]|CPU [us/m]|CPU [%]|spins|hits|blocks|spurious|refused|late";
    let rows = outcomes.iter().map(|outcome| {
        let (samples, response) = (&outcome.times.samples, outcome.response.as_ref());
        let waits = &outcome.waits;
        row(
            outcome,
            [
                samples.count().to_string(),
                figure(Some(outcome.times.median_of_rounds()), 2),
                figure(samples.percentile(0.9), 2),
                figure(samples.percentile(0.99), 2),
                figure(Some(samples.max()), 1),
                figure(response.map(Distribution::median_of_rounds), 2),
                figure(response.and_then(|it| it.samples.percentile(0.99)), 2),
                figure(Some(outcome.cpu()), 2),
                figure(Some(outcome.share() * 100.0), 2),
                waits.spins.to_string(),
                waits.hits.to_string(),
                waits.blocks.to_string(),
                waits.spurious.to_string(),
                outcome.refused.to_string(),
                outcome.late.to_string(),
            ],
        )
    });
    table(2, NAMES, &rows.collect::<Vec<_>>())
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

/// Returns the JSON document.
pub(super) fn json(conditions: &Conditions, outcomes: &[Outcome]) -> String {
    let results = outcomes.iter().map(|it| entry(it, outcomes));
    let body = object! {
        conditions: conditions,
        latency_is: conditions.latency_definition(),
        results: results.collect::<Vec<_>>(),
    };
    document(SCHEMA, &conditions.device, body)
}

fn latency(of: &Distribution) -> impl Serialize + use<> {
    let samples = &of.samples;
    object! {
        median: of.median_of_rounds(),
        min: samples.min(),
        p90: samples.percentile(0.9),
        p99: samples.percentile(0.99),
        #[serde(rename = "p99.9")]
        p99_9: samples.percentile(0.999),
        max: samples.max(),
        mean: samples.mean(),
    }
}

fn entry<'a>(outcome: &'a Outcome, all: &'a [Outcome]) -> impl Serialize + use<'a> {
    object! {
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
        counters: object! {
            spins: outcome.waits.spins,
            hits: outcome.waits.hits,
            blocks: outcome.waits.blocks,
            spurious: outcome.waits.spurious,
            refused_posts: outcome.refused,
        },
        late: outcome.late,
        round_cpu: &outcome.cpu,
        beside: Compared::of(outcome, all),
        #[serde(flatten)]
        figures: outcome.times.figures(),
        #[serde(flatten)]
        reliability: outcome.reliability(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::report::fit::assert_fits;

    #[test]
    fn every_table_fits_a_terminal() {
        let conditions = Conditions {
            host: Host::read(),
            device: DeviceFacts::emulated(),
            rounds: 5,
            seconds: 0.5,
            cpus: Cpus {
                waiter: Some(1),
                sender: None,
            },
            clock: "TSC",
        };
        let clock = Clock::monotonic();
        let policies = [
            WaitPolicy::Poll,
            "adaptive:1000000:inf".parse().unwrap(),
            WaitPolicy::Block,
        ];
        let outcomes = policies.map(|policy| {
            let mut outcome = Outcome::new(Rate::PerSecond(1e7), policy, &clock);
            for _ in 0..100_000 {
                outcome.times.samples.record(987_654_321);
                outcome
                    .response
                    .as_mut()
                    .unwrap()
                    .samples
                    .record(987_654_321);
            }
            for times in [&mut outcome.times, outcome.response.as_mut().unwrap()] {
                times.round_medians.push(987_654.321);
            }
            outcome.cpu.push(1234.5);
            outcome.share.push(1.0);
            outcome.waits.spins = 12_345_678;
            outcome.late = 1_234_567;
            outcome
        });
        let text = text(&conditions, &outcomes);
        assert_fits(&text);
        for name in ["due 99 % [us]", "CPU [%]", "spurious", "poll's is 1"] {
            assert!(text.contains(name), "{name} in {text}");
        }
    }
}
