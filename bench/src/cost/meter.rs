//! Times of the measured sections.

use serde::{Deserialize, Serialize};

use super::operation::Operation;
use crate::clock::Clock;
use crate::worker::section::measured;

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
