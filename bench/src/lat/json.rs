//! Results of `lat` as JSON.

use serde::Serialize;

use super::conditions::Conditions;
use super::layers;
use super::outcome::Outcome;
use crate::options::Wait;
use crate::report::Distribution;
use crate::report::document::{document, object};

/// Name and version of the schema. Version 1 had one result per size; since version
/// 2 there is one per size and API. Since version 3 percentiles without enough
/// samples are null; since version 4, `run.arrival` is there; version 5 has `series`, and more
/// operations.
const SCHEMA: &str = "dat-bench/lat/5";

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum DatEvents {
    Dequeue,
    Wait(Wait),
}

pub(super) fn text(conditions: &Conditions, outcomes: &[Outcome], complete: bool) -> String {
    let run = &conditions.run;
    let events = || conditions.wait.map_or(DatEvents::Dequeue, DatEvents::Wait);
    let results: Vec<_> = outcomes.iter().map(|it| entry(it, conditions)).collect();
    let body = object! {
        host: &run.host,
        device: &run.device,
        run: object! {
            #[serde(flatten)]
            common: run,
            dat_events: run.measures_dat().then(events),
            endpoints: conditions.endpoints,
            arrival: conditions.arrival,
            reported: conditions.reported,
            rates_per_second: &conditions.rates,
            warmup_round_trips: run.warmup,
            closed_loop: !conditions.is_open(),
        },
        complete: complete,
        results: results,
        layers: layers::all(outcomes),
    };
    document(SCHEMA, &run.device, body)
}

/// Returns the results of one case. In an open loop, the times are response times.
fn entry(outcome: &Outcome, conditions: &Conditions) -> impl Serialize {
    let open = outcome.open.as_ref();
    object! {
        bytes: outcome.size,
        api: outcome.api,
        rate_per_second: open.map(|open| open.rate),
        #[serde(flatten)]
        times: times(&outcome.times),
        series: &outcome.series,
        payload_verified: outcome.verified,
        #[serde(flatten)]
        reliability: outcome.reliability(conditions),
        pace: open.map(|open| object! {
            #[serde(flatten)]
            pace: open.pace,
            achieved_per_second: open.pace.achieved(),
            fell_behind: open.pace.fell_behind(open.rate),
        }),
        service: open.map(|open| times(&open.service)),
    }
}

/// Returns a row of the table, with its columns as keys; times in microseconds.
fn times(of: &Distribution) -> impl Serialize {
    let samples = &of.samples;
    object! {
        iterations: samples.count(),
        t_min: samples.min(),
        t_max_perftest: samples.perftest_max(),
        t_typical: samples.quantile(0.5),
        t_avg: samples.mean(),
        t_stdev: samples.stdev(),
        p99: samples.percentile(0.99),
        #[serde(rename = "p99.9")]
        p99_9: samples.percentile(0.999),
        #[serde(rename = "p99.99")]
        p99_99: samples.percentile(0.9999),
        // `t_max_perftest` leaves out the two largest.
        max: samples.max(),
        #[serde(flatten)]
        figures: of.figures(),
    }
}
