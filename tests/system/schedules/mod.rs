//! The engine under faults. Schedules follow from a seed. The wire of the NIC
//! drops, duplicates, delays and reorders packets; receivers are not ready; queue
//! pairs, ports and completions fail.
//!
//! Every posted request is accounted for exactly once: completed, flushed or
//! refused. A connection delivers what was sent, in order, each message once.
//!
//! `DAT_SEEDS=FIRST:COUNT` selects the seeds; a failure prints how to repeat it.

mod account;
mod random;
mod schedule;

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::support::held::Held;
use crate::support::system::System;

/// The seeds of the suite; `perf-scripts/soak` runs any number.
const SAMPLE: (u64, u64) = (0, 200);
/// Seeds that failed in a long run, and are in the suite since.
const FAILED_ONCE: [u64; 1] = [19_625];
const VARIABLE: &str = "DAT_SEEDS";

fn seeds() -> impl Iterator<Item = u64> {
    let given = std::env::var(VARIABLE).ok().filter(|text| !text.is_empty());
    let parse = |text: &str| {
        let (first, count) = text.split_once(':')?;
        Some((first.parse().ok()?, count.parse().ok()?))
    };
    let failed_once: &[u64] = if given.is_none() { &FAILED_ONCE } else { &[] };
    let (first, count): (u64, u64) = given.map_or(SAMPLE, |text| {
        parse(&text).unwrap_or_else(|| {
            panic!("invalid {VARIABLE}={text}: expected FIRST:COUNT, such as 0:200")
        })
    });
    (first..first + count).chain(failed_once.iter().copied())
}

/// Returns whether the device is the emulated NIC, which alone has faults.
fn is_emulated() -> bool {
    System::new().is_stepped()
}

#[test]
fn every_request_is_accounted_for_exactly_once() {
    if !is_emulated() {
        return println!("SKIPPED: needs the faults of the emulated NIC");
    }
    let mut totals = account::Totals::default();
    let count = seeds().count();
    Held::measure_memory();
    let mut early = Held::now();
    for (number, seed) in seeds().enumerate() {
        // By then everything has been used once.
        if number == count / 10 {
            early = Held::now();
        }
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
    let late = Held::now();
    println!("after a tenth: {early:?}; at the end: {late:?}");
    // A long run has the process for itself.
    if count >= 1000 {
        assert!(late.is_flat_since(&early), "{late:?} of {early:?}");
    }
    // A sample without every outcome would prove nothing.
    if count as u64 >= SAMPLE.1 {
        assert!(totals.is_varied(), "{totals:?}");
    }
}

#[test]
fn a_seed_repeats_a_run_exactly() {
    if !is_emulated() {
        return println!("SKIPPED: needs the faults of the emulated NIC");
    }
    for seed in [3, 77, 1234] {
        let first = schedule::run(seed);
        let again = schedule::run(seed);
        assert!(!first.log.is_empty());
        assert_eq!(first.log, again.log, "seed {seed}");
    }
}
