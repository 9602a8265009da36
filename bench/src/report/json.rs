//! Results of `lat` as JSON.

use serde::Serialize;

use super::distribution::Figures;
use super::document::document;
use super::layers::{self, Added};
use super::{Arrival, Conditions, Distribution, Outcome, Reliability, RunConditions};
use crate::host::Host;
use crate::options::{Api, Wait};
use crate::stats::Reported;
use crate::stats::pace::Pace;

use super::conditions::DeviceFacts;

/// Name and version of the schema. Version 1 had one result per size; since version
/// 2 there is one per size and API. Since version 3 percentiles without enough
/// samples are null; since version 4, `run.arrival` is there.
const SCHEMA: &str = "dat-bench/lat/4";

#[derive(Serialize)]
struct Body<'a> {
    host: &'a Host,
    device: &'a DeviceFacts,
    run: Run<'a>,
    /// Whether all cases were measured in all rounds.
    complete: bool,
    results: Vec<Entry<'a>>,
    /// What each API adds to the one before it in `run.apis`, per size.
    layers: Vec<Added>,
}

#[derive(Serialize)]
struct Run<'a> {
    #[serde(flatten)]
    common: &'a RunConditions,
    /// How DAT's events are taken: `dequeue`, or the wait policy.
    dat_events: Option<DatEvents>,
    /// How the receiver of a write notices it; none for other operations.
    arrival: Option<Arrival>,
    reported: Reported,
    /// Requested messages per second; empty in a closed loop.
    rates_per_second: &'a [f64],
    warmup_round_trips: u64,
    closed_loop: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum DatEvents {
    Dequeue,
    Wait(Wait),
}

/// The results of one case. In an open loop, the times are response times.
#[derive(Serialize)]
struct Entry<'a> {
    bytes: u32,
    api: Api,
    /// Requested messages per second; none in a closed loop.
    rate_per_second: Option<f64>,
    #[serde(flatten)]
    times: Times<'a>,
    /// Whether the received bytes were compared with those sent.
    payload_verified: bool,
    #[serde(flatten)]
    reliability: Reliability<'a>,
    /// How the sender kept its schedule; none in a closed loop.
    pace: Option<PaceEntry>,
    /// Service times; none in a closed loop.
    service: Option<Times<'a>>,
}

/// A row of the table, with its columns as keys; times in microseconds.
#[derive(Serialize)]
struct Times<'a> {
    iterations: u64,
    t_min: f64,
    t_max_perftest: f64,
    t_typical: f64,
    t_avg: f64,
    t_stdev: f64,
    #[serde(rename = "p99")]
    p99: Option<f64>,
    #[serde(rename = "p99.9")]
    p99_9: Option<f64>,
    #[serde(rename = "p99.99")]
    p99_99: Option<f64>,
    /// The largest sample; `t_max_perftest` leaves out the two largest.
    max: f64,
    #[serde(flatten)]
    figures: Figures<'a>,
}

#[derive(Serialize)]
struct PaceEntry {
    #[serde(flatten)]
    pace: Pace,
    achieved_per_second: f64,
    fell_behind: bool,
}

pub(crate) fn text(conditions: &Conditions, outcomes: &[Outcome], complete: bool) -> String {
    let run = &conditions.run;
    let body = Body {
        host: &run.host,
        device: &run.device,
        run: Run {
            dat_events: run
                .measures_dat()
                .then(|| conditions.wait.map_or(DatEvents::Dequeue, DatEvents::Wait)),
            arrival: conditions.arrival,
            reported: conditions.reported,
            rates_per_second: &conditions.rates,
            warmup_round_trips: run.warmup,
            closed_loop: !conditions.is_open(),
            common: run,
        },
        complete,
        results: outcomes.iter().map(|it| entry(it, conditions)).collect(),
        layers: layers::all(outcomes),
    };
    document(SCHEMA, &run.device, body)
}

fn entry<'a>(outcome: &'a Outcome, conditions: &Conditions) -> Entry<'a> {
    let open = outcome.open.as_ref();
    Entry {
        bytes: outcome.size,
        api: outcome.api,
        rate_per_second: open.map(|open| open.rate),
        times: times(&outcome.times),
        payload_verified: outcome.verified,
        reliability: outcome.reliability(conditions),
        pace: open.map(|open| PaceEntry {
            pace: open.pace,
            achieved_per_second: open.pace.achieved(),
            fell_behind: open.pace.fell_behind(open.rate),
        }),
        service: open.map(|open| times(&open.service)),
    }
}

fn times(of: &Distribution) -> Times<'_> {
    let samples = &of.samples;
    Times {
        iterations: samples.count(),
        t_min: samples.min(),
        t_max_perftest: samples.perftest_max(),
        t_typical: samples.quantile(0.5),
        t_avg: samples.mean(),
        t_stdev: samples.stdev(),
        p99: samples.percentile(0.99),
        p99_9: samples.percentile(0.999),
        p99_99: samples.percentile(0.9999),
        max: samples.max(),
        figures: of.figures(),
    }
}
