//! The stepped mode: the caller drives the NIC and the clock, so every run is
//! the same.

use std::time::Duration;

use super::{Budget, Driver};
use crate::fabric::port::Port;
use crate::spec::Nanos;
use crate::uar::UarPages;

/// The clock of a stepped NIC.
#[derive(Debug)]
pub struct Stepper {
    now: Nanos,
    deadline: Option<Nanos>,
}

impl Default for Stepper {
    /// Returns a stepper at time 1.
    fn default() -> Self {
        Self {
            now: 1,
            deadline: None,
        }
    }
}

impl Stepper {
    /// Returns a stepper at time `now`.
    #[must_use]
    pub fn at(now: Nanos) -> Self {
        Self {
            now,
            deadline: None,
        }
    }

    /// Returns its time.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Takes the doorbells and at most one packet, and does at most one unit of
    /// work. Returns `false` if there was nothing to do; then only a doorbell,
    /// a command or the passing of time creates work.
    pub fn step(&mut self, nic: &mut impl Driver, port: &mut Port, uar: &UarPages) -> bool {
        let mut doorbells = Vec::new();
        uar.scan(&mut |write| doorbells.push(write));
        let progress = nic.run(&doorbells, port, self.now, Budget::STEP);
        self.deadline = progress.next_deadline;
        !doorbells.is_empty() | progress.worked
    }

    /// Steps until there is nothing to do. Returns the number of steps.
    pub fn run_until_idle(
        &mut self,
        nic: &mut impl Driver,
        port: &mut Port,
        uar: &UarPages,
    ) -> usize {
        let mut steps = 0;
        while self.step(nic, port, uar) {
            steps += 1;
        }
        steps
    }

    /// Advances the clock by `by`, and runs what becomes due on the way at its
    /// deadline.
    pub fn advance(
        &mut self,
        nic: &mut impl Driver,
        port: &mut Port,
        uar: &UarPages,
        by: Duration,
    ) {
        let by = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        let end = self.now.saturating_add(by);
        self.run_until_idle(nic, port, uar);
        while let Some(due) = self.deadline.filter(|&due| due <= end) {
            // Time advances even if a deadline lies in the past.
            self.now = due.max(self.now + 1).min(end);
            self.run_until_idle(nic, port, uar);
            if self.now == end {
                return;
            }
        }
        self.now = end;
        self.run_until_idle(nic, port, uar);
    }
}

#[cfg(test)]
#[path = "stepped_tests.rs"]
mod tests;
