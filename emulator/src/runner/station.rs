//! What moves a NIC: the NIC itself, its port, and how its thread waits.
//! Whoever holds the lock of a station may move the NIC for one batch: the
//! NIC thread, or an application's thread whose store was trapped.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Driver;
use super::waiting::{Wait, WaitPolicy};
use crate::fabric::bells::Wakes;
use crate::fabric::port::Port;
use crate::nic::Nanos;
use crate::nic::spec::UarWrite;

/// How often a sender that found no room looks again: nobody wakes it for a
/// reader that was killed.
const REFUSED_INTERVAL: Nanos = 2_000_000;

/// A NIC and its place on the fabric.
#[derive(Debug)]
pub struct Station<D> {
    /// The NIC.
    pub driver: D,
    /// Its fabric.
    pub port: Port,
    pub(super) policy: WaitPolicy,
    /// When the NIC is to run without a doorbell or a packet.
    pub(super) deadline: Option<Nanos>,
    /// How long the NIC thread sleeps unless woken; `None` while it is awake.
    pub(super) sleeps_until: Option<Nanos>,
}

/// What one batch left to do.
#[derive(Debug)]
pub(super) struct Batch {
    /// It did something: there may be more.
    pub(super) worked: bool,
    /// To be woken once the station is unlocked.
    pub(super) wakes: Wakes,
}

/// What the NIC thread is to do.
#[derive(Debug)]
pub(super) struct Pause {
    pub(super) wait: Wait,
    pub(super) deadline: Option<Nanos>,
    /// Peers have acknowledgements that they were not woken for.
    pub(super) patient: bool,
}

impl<D> Station<D> {
    /// A NIC that has not run yet.
    pub fn new(driver: D, port: Port) -> Self {
        Self {
            driver,
            port,
            policy: WaitPolicy::default(),
            deadline: None,
            sleeps_until: None,
        }
    }
}

impl<D: Driver> Station<D> {
    /// Runs the NIC once.
    pub(super) fn run(&mut self, doorbells: &[UarWrite], now: Nanos) -> Batch {
        let progress = self.driver.run(doorbells, &mut self.port, now);
        self.deadline = progress.next_deadline;
        if self.port.take_refused() {
            let retry = now + REFUSED_INTERVAL;
            self.deadline = Some(self.deadline.map_or(retry, |deadline| deadline.min(retry)));
        }
        Batch {
            worked: progress.worked,
            wakes: self.port.take_urgent(),
        }
    }

    /// The NIC thread has nothing to do.
    pub(super) fn pause(&mut self, now: Nanos) -> Pause {
        let wait = self.policy.wait(now);
        self.sleeps_until = match wait {
            Wait::Sleep(_) => Some(self.deadline.unwrap_or(Nanos::MAX)),
            Wait::Spin | Wait::Nap(_) => None,
        };
        Pause {
            wait,
            deadline: self.deadline,
            patient: self.port.has_patient(),
        }
    }
}

/// Locks a station. What a panic has interrupted is still a NIC, and the
/// panic has been reported where it happened.
pub(super) fn lock<D>(station: &Mutex<Station<D>>) -> MutexGuard<'_, Station<D>> {
    station.lock().unwrap_or_else(PoisonError::into_inner)
}
