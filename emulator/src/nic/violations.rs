//! The driver's violations of the device's contract.
//!
//! An emulated NIC could be more tolerant than hardware. It records whatever it
//! tolerates, so that a test can require that there is nothing.

use std::collections::VecDeque;

/// Maximum number of texts kept; the count continues.
const MAX_TEXTS: usize = 256;

/// Violations of the contract between driver and device.
#[derive(Debug, Default)]
pub struct Violations {
    count: u64,
    recent: VecDeque<String>,
    shared_register_writes: u64,
    stale_arms: u64,
}

impl Violations {
    /// Returns the number of violations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the latest violations as text, oldest first.
    pub fn recent(&self) -> impl Iterator<Item = &str> {
        self.recent.iter().map(String::as_str)
    }

    /// Returns the number of doorbells on a register whose previous doorbell was another
    /// QP's. This is legal under a lock, and not counted as a violation.
    #[must_use]
    pub fn shared_register_writes(&self) -> u64 {
        self.shared_register_writes
    }

    /// Returns the number of CQ arms that were ignored because their sequence
    /// number was not the number of events delivered.
    #[must_use]
    pub fn stale_arms(&self) -> u64 {
        self.stale_arms
    }

    pub(super) fn record(&mut self, text: String) {
        self.count += 1;
        if self.recent.len() == MAX_TEXTS {
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
