//! The engine under faults: schedules made from a seed, on a NIC whose wire
//! loses, doubles, delays and reorders, whose receivers are not ready, and
//! whose queue pairs, ports and completions fail.
//!
//! Every request that was posted is accounted for exactly once: completed,
//! flushed or refused; what a connection delivers is what was sent, in order,
//! each once.
//!
//! `DAT_SEEDS=FIRST:COUNT` chooses the seeds; a failure says how to repeat it.

mod account;
mod chance;
mod schedule;

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::support::system::System;

/// What the suite runs; `perf-scripts/soak` runs as many as one likes.
const SAMPLE: (u64, u64) = (0, 200);
const VARIABLE: &str = "DAT_SEEDS";

fn seeds() -> std::ops::Range<u64> {
    let given = std::env::var(VARIABLE).ok().filter(|text| !text.is_empty());
    let parse = |text: &str| {
        let (first, count) = text.split_once(':')?;
        Some((first.parse().ok()?, count.parse().ok()?))
    };
    let (first, count): (u64, u64) = given.map_or(SAMPLE, |text| {
        parse(&text).unwrap_or_else(|| panic!("{VARIABLE}={text}: give FIRST:COUNT, as 0:200"))
    });
    first..first + count
}

/// The faults are the emulated NIC's.
fn is_emulated() -> bool {
    System::new().is_stepped()
}

#[test]
fn every_request_is_accounted_for_exactly_once() {
    if !is_emulated() {
        return println!("SKIPPED: the faults are the emulated NIC's");
    }
    let mut totals = account::Totals::default();
    for seed in seeds() {
        let run = catch_unwind(AssertUnwindSafe(|| schedule::run(seed)));
        match run {
            Ok(outcome) => totals.add(&outcome.totals),
            Err(panic) => {
                let path = std::env::var("DAT_PATH").unwrap_or_default();
                eprintln!(
                    "\nseed {seed} failed; to repeat it:\n  \
                     {VARIABLE}={seed}:1 DAT_PATH={path} cargo test -p udapl --test system \
                     schedules::every_request -- --nocapture\n"
                );
                std::panic::resume_unwind(panic);
            }
        }
    }
    println!("{totals:?}");
    // A sample in which nothing happens would prove nothing.
    if seeds().end - seeds().start >= SAMPLE.1 {
        assert!(totals.is_varied(), "{totals:?}");
    }
}

#[test]
fn a_seed_repeats_a_run_exactly() {
    if !is_emulated() {
        return println!("SKIPPED: the faults are the emulated NIC's");
    }
    for seed in [3, 77, 1234] {
        let first = schedule::run(seed);
        let again = schedule::run(seed);
        assert!(!first.log.is_empty());
        assert_eq!(first.log, again.log, "seed {seed}");
    }
}
