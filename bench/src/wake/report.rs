//! Output of `wake`: table and JSON.

use std::fmt::Write;

use dat_api::safe::WaitPolicy;
use serde::Serialize;

use super::case::Cpus;
use super::outcome::{Outcome, find};
use crate::host::Host;
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
        " 50 %: median of the medians of {} rounds of {} s; -: too few samples\n",
        conditions.rounds, conditions.seconds
    );
    out += &tables(outcomes);
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
    fit(&out) + "\n" + &reliability::text(&judged)
}

/// Returns a table of latencies, one of response times and CPU time, and one of
/// counters; together they would be too wide.
fn tables(outcomes: &[Outcome]) -> String {
    let figure = |value: Option<f64>| value.map_or("-".to_owned(), |it| format!("{it:.2}"));
    let percentile = |of: &Distribution, share| figure(of.samples.percentile(share));
    let mut out = table(
        outcomes,
        &[
            ("messages", 8),
            ("50 % [us]", 9),
            ("90 % [us]", 9),
            ("99 % [us]", 9),
            ("max [us]", 9),
        ],
        |outcome| {
            let times = &outcome.times;
            vec![
                times.samples.count().to_string(),
                figure(Some(times.median_of_rounds())),
                percentile(times, 0.9),
                percentile(times, 0.99),
                format!("{:.1}", times.samples.max()),
            ]
        },
    );
    out += "\n due: response times, from the moment at which a message was due\n CPU: time of the waiting thread, medians of the rounds; us/m: microseconds per message\n\n";
    out += &table(
        outcomes,
        &[
            ("due 50 % [us]", 13),
            ("due 99 % [us]", 13),
            ("CPU [us/m]", 10),
            ("CPU [%]", 7),
        ],
        |outcome| {
            let response = outcome.response.as_ref();
            vec![
                figure(response.map(Distribution::median_of_rounds)),
                figure(response.and_then(|it| it.samples.percentile(0.99))),
                format!("{:.2}", outcome.cpu()),
                format!("{:.2}", outcome.share() * 100.0),
            ]
        },
    );
    out += "\n counters: sums of all rounds\n\n";
    out += &table(
        outcomes,
        &[
            ("spins", 8),
            ("hits", 8),
            ("blocks", 8),
            ("spurious", 8),
            ("refused", 7),
            ("late", 7),
        ],
        |outcome| {
            let waits = &outcome.waits;
            let counts = [
                waits.spins,
                waits.hits,
                waits.blocks,
                waits.spurious,
                outcome.refused,
                outcome.late,
            ];
            counts.map(|count| count.to_string()).into()
        },
    );
    out
}

/// Returns a table with a row for each case; columns have a name and a width.
fn table(
    outcomes: &[Outcome],
    columns: &[(&str, usize)],
    cells: impl Fn(&Outcome) -> Vec<String>,
) -> String {
    let row = |rate: &str, wait: &str, cells: &[String]| {
        let cells = cells
            .iter()
            .zip(columns)
            .map(|(cell, (_, width))| format!(" {cell:>width$}"));
        let begin = format!(" {rate:>9} {wait:<17}");
        let row: String = [begin].into_iter().chain(cells).collect();
        format!("{}\n", row.trim_end())
    };
    let names: Vec<String> = columns.iter().map(|(name, _)| (*name).to_owned()).collect();
    let mut out = row("rate [/s]", "wait", &names);
    for outcome in outcomes {
        out += &row(
            &outcome.rate.to_string(),
            &outcome.policy.to_string(),
            &cells(outcome),
        );
    }
    out
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
            device: DeviceFacts {
                name: "mlx5_0".into(),
                port: 1,
                firmware: "22.0.0".into(),
                link: "InfiniBand".into(),
                path: "direct",
                path_reason: None,
                emulated_fabric: Some("default".into()),
            },
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
