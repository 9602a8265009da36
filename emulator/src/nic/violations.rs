//! What software did that hardware would not forgive.
//!
//! An emulated NIC can be too kind. What it survives here it writes down, so
//! that a test can demand an empty list.

use std::collections::VecDeque;

/// Most texts kept; the count goes on.
const KEPT: usize = 256;

/// Breaches of the contract between driver and device.
#[derive(Debug, Default)]
pub struct Violations {
    count: u64,
    recent: VecDeque<String>,
    shared_register_writes: u64,
    stale_arms: u64,
}

impl Violations {
    /// How many there were.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The latest ones as text, oldest first.
    pub fn recent(&self) -> impl Iterator<Item = &str> {
        self.recent.iter().map(String::as_str)
    }

    /// Doorbells on a register that another QP had rung last. Legal, but
    /// only under a lock: counted, not a breach.
    #[must_use]
    pub fn shared_register_writes(&self) -> u64 {
        self.shared_register_writes
    }

    /// CQ arms that were ignored because their sequence number was not the
    /// number of events delivered.
    #[must_use]
    pub fn stale_arms(&self) -> u64 {
        self.stale_arms
    }

    pub(super) fn record(&mut self, text: String) {
        self.count += 1;
        if self.recent.len() == KEPT {
            self.recent.pop_front();
        }
        self.recent.push_back(text);
    }

    pub(super) fn count_shared_register(&mut self) {
        self.shared_register_writes += 1;
    }

    pub(super) fn count_stale_arm(&mut self) {
        self.stale_arms += 1;
    }
}
