//! The measured section: one call of a function that is not inlined.
//!
//! callgrind counts inside this function, and writes the counts whenever it
//! returns (see `callgrind.rs`). The time of the same function is measured, so
//! both figures are of the same instructions.

use serde::{Deserialize, Serialize};

use super::operation::Operation;
use crate::clock::Clock;

/// The symbol by which callgrind finds the measured section.
pub(super) const MEASURED: &str = "dat_bench_cost_measured";

/// One measured section.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Record {
    /// Key of the operation.
    pub(super) operation: String,
    /// Number of operations.
    pub(super) count: u32,
    /// Per operation; none if the section had to wait for a completion.
    pub(super) nanoseconds: Option<f64>,
}

/// Measures sections and keeps their records.
pub(super) struct Meter {
    clock: Clock,
    pub(super) records: Vec<Record>,
}

/// Runs the work. The name is not mangled, so that callgrind finds it.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn dat_bench_cost_measured(work: &mut Work<'_>) {
    (work.0)();
    // Prevents a tail call, so that the function returns after the work.
    core::hint::black_box(());
}

struct Work<'a>(&'a mut dyn FnMut());

/// Runs `work` as a section that callgrind counts.
#[inline(always)]
pub(crate) fn measured(work: &mut dyn FnMut()) {
    dat_bench_cost_measured(&mut Work(work));
}

impl Meter {
    pub(super) fn new(clock: Clock) -> Self {
        Self {
            clock,
            records: Vec::new(),
        }
    }

    /// Measures `work`, which consists of `count` operations.
    pub(super) fn measure(&mut self, operation: Operation, count: u32, work: &mut dyn FnMut()) {
        let start = self.clock.now();
        measured(work);
        let ticks = self.clock.now().wrapping_sub(start);
        let nanoseconds = ticks as f64 * self.clock.nanoseconds_per_tick() / f64::from(count);
        self.records.push(Record {
            operation: operation.key().to_owned(),
            count,
            nanoseconds: Some(nanoseconds),
        });
    }

    /// Marks the last section as invalid: it had to wait for a completion.
    pub(super) fn invalidate(&mut self) {
        if let Some(record) = self.records.last_mut() {
            record.nanoseconds = None;
        }
    }
}
