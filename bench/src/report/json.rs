//! Results as JSON. The schema has a version: within a version, fields may be
//! added; removing a field or changing its meaning needs a new version.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use super::layers::{self, Added};
use super::{Conditions, Outcome, resolved_quantiles};
use crate::cli::{Api, Operation, Wait};
use crate::host::Host;
use crate::stats::Reported;

use super::conditions::{DeviceFacts, Goal};

/// Name and version of the schema. Version 1 had one result per size; version 2
/// has one per size and API.
const SCHEMA: &str = "dat-bench/lat/2";

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    dat_bench: &'static str,
    /// Seconds since 1970, UTC.
    finished_at: u64,
    host: &'a Host,
    device: &'a DeviceFacts,
    /// Whether the device is emulated, so that the figures are the emulator's.
    emulated: bool,
    run: Run<'a>,
    results: Vec<ResultOfSize>,
    /// What each API adds to the one before it in `run.apis`, per size.
    layers: Vec<Added>,
}

#[derive(Serialize)]
struct Run<'a> {
    apis: &'a [Api],
    /// How DAT's events are taken: `dequeue`, or the wait policy.
    dat_events: Option<DatEvents>,
    /// The library of the API `c`.
    libdat: Option<&'a std::path::Path>,
    /// Rounds, in each of which every API has one turn per size.
    rounds: u32,
    operation: Operation,
    reported: Reported,
    loopback: bool,
    peer: Option<&'a str>,
    goal: Goal,
    warmup_round_trips: u64,
    tx_depth: u32,
    rx_depth: Option<u32>,
    /// The largest inline message.
    inline_bytes: u32,
    /// The largest inline message requested, which the device may not support.
    inline_bytes_wanted: u32,
    cpu: Option<usize>,
    clock: &'static str,
    nanoseconds_per_tick: f64,
    clock_reading_nanoseconds: f64,
    closed_loop: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum DatEvents {
    Dequeue,
    Wait(Wait),
}

/// A row of the table, with its columns as keys; times in microseconds.
#[derive(Serialize)]
struct ResultOfSize {
    bytes: u32,
    api: Api,
    iterations: u64,
    t_min: f64,
    t_max_perftest: f64,
    t_typical: f64,
    t_avg: f64,
    t_stdev: f64,
    #[serde(rename = "p99")]
    p99: f64,
    #[serde(rename = "p99.9")]
    p99_9: f64,
    #[serde(rename = "p99.99")]
    p99_99: f64,
    max: f64,
    /// Whether the received bytes were compared with those sent.
    payload_verified: bool,
    /// The median of each round, microseconds.
    round_medians: Vec<f64>,
    percentiles: Vec<Percentile>,
    histogram: Buckets,
}

#[derive(Serialize)]
struct Percentile {
    share: f64,
    usec: f64,
}

/// The non-empty buckets: upper end in nanoseconds, and count.
#[derive(Serialize)]
struct Buckets {
    significant_digits: u8,
    nanoseconds_and_count: Vec<(u64, u64)>,
}

pub(super) fn document(conditions: &Conditions, outcomes: &[Outcome]) -> String {
    let document = Document {
        schema: SCHEMA,
        dat_bench: env!("CARGO_PKG_VERSION"),
        finished_at: SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs()),
        host: &conditions.host,
        device: &conditions.device,
        emulated: conditions.device.emulated_fabric.is_some(),
        run: Run {
            apis: &conditions.apis,
            dat_events: conditions
                .measures_dat()
                .then(|| conditions.wait.map_or(DatEvents::Dequeue, DatEvents::Wait)),
            libdat: conditions.libdat.as_deref(),
            rounds: conditions.rounds,
            operation: conditions.operation,
            reported: conditions.reported(),
            loopback: conditions.peer.is_none(),
            peer: conditions.peer.as_deref(),
            goal: conditions.goal,
            warmup_round_trips: conditions.warmup,
            tx_depth: conditions.tx_depth,
            rx_depth: conditions.rx_depth,
            inline_bytes: conditions.inline,
            inline_bytes_wanted: conditions.inline_requested,
            cpu: conditions.cpu,
            clock: conditions.clock.name(),
            nanoseconds_per_tick: conditions.clock.nanoseconds_per_tick(),
            clock_reading_nanoseconds: conditions.clock_cost,
            closed_loop: true,
        },
        results: outcomes.iter().map(of_size).collect(),
        layers: layers::all(outcomes),
    };
    let mut text = serde_json::to_string_pretty(&document)
        .expect("the document has text keys and finite numbers only");
    text.push('\n');
    text
}

fn of_size(outcome: &Outcome) -> ResultOfSize {
    let samples = &outcome.samples;
    ResultOfSize {
        bytes: outcome.size,
        api: outcome.api,
        round_medians: outcome.round_medians.clone(),
        iterations: samples.count(),
        t_min: samples.min(),
        t_max_perftest: samples.perftest_max(),
        t_typical: samples.quantile(0.5),
        t_avg: samples.mean(),
        t_stdev: samples.stdev(),
        p99: samples.quantile(0.99),
        p99_9: samples.quantile(0.999),
        p99_99: samples.quantile(0.9999),
        max: samples.max(),
        payload_verified: outcome.verified,
        percentiles: resolved_quantiles(samples.count())
            .map(|(share, _)| Percentile {
                share,
                usec: samples.quantile(share),
            })
            .collect(),
        histogram: Buckets {
            significant_digits: samples.histogram().sigfig(),
            nanoseconds_and_count: samples
                .histogram()
                .iter_recorded()
                .map(|value| {
                    (
                        value.value_iterated_to(),
                        value.count_since_last_iteration(),
                    )
                })
                .collect(),
        },
    }
}
