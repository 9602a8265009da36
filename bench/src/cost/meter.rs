//! The measured section: one call of a function that is not inlined.
//!
//! callgrind is told to count inside of this function, and to write what it
//! has counted whenever it ends (see `callgrind.rs`). The same function is
//! timed, so that both figures are of the same instructions.

use serde::{Deserialize, Serialize};

use super::operation::Operation;
use crate::clock::Clock;

/// callgrind finds the measured section by this name.
pub(super) const MEASURED: &str = "dat_bench_cost_measured";

/// One measured section.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Record {
    /// Key of the operation.
    pub(super) operation: String,
    /// How many operations it was.
    pub(super) count: u32,
    /// Per operation; none if completions were not ready as they should be.
    pub(super) nanoseconds: Option<f64>,
}

/// Measures, and keeps what it has measured.
pub(super) struct Meter {
    clock: Clock,
    pub(super) records: Vec<Record>,
}

/// Runs the work. Its name is what callgrind looks for, hence no mangling.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn dat_bench_cost_measured(work: &mut Work<'_>) {
    (work.0)();
    // No jump to the work instead of a call: the function ends after it.
    core::hint::black_box(());
}

struct Work<'a>(&'a mut dyn FnMut());

/// Runs work as a section that callgrind counts.
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

    /// Measures work that is `count` operations.
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

    /// The section before is no sample.
    pub(super) fn spoil(&mut self) {
        if let Some(record) = self.records.last_mut() {
            record.nanoseconds = None;
        }
    }
}
