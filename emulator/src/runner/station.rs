//! What moves a NIC: the NIC itself, its port, and how its thread waits.
//! Whoever holds the lock of a station may move the NIC for one batch: the
//! NIC thread, or an application's thread whose store was trapped.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Driver;
use super::patience::Patience;
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
    pub(super) patience: Patience,
    /// The core that the NIC thread was on when it had nothing to do.
    thread_core: Option<u32>,
    /// The core that a store was trapped on last.
    store_core: Option<u32>,
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
    /// Peers have acknowledgements that they were not woken for, and no timer
    /// tells when to.
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
            patience: Patience::new(),
            thread_core: None,
            store_core: None,
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
        self.thread_core = current_core();
        let wait = self.policy.wait(now, self.thread_has_core());
        self.sleeps_until = match wait {
            Wait::Sleep(_) => Some(self.deadline.unwrap_or(Nanos::MAX)),
            Wait::Spin | Wait::Nap(_) => None,
        };
        let patient = wait != Wait::Spin && self.port.has_patient();
        Pause {
            wait,
            deadline: self.deadline,
            patient: patient && !self.patience.begin(),
        }
    }

    /// A store was trapped on the calling thread. Answers whether the NIC
    /// thread is to spin from now on.
    pub(super) fn wants_spinning(&mut self, now: Nanos) -> bool {
        self.store_core = current_core();
        self.policy.wait(now, self.thread_has_core()) == Wait::Spin
    }

    /// Whether the NIC thread may spin without keeping from the application
    /// the core it rings from.
    fn thread_has_core(&self) -> bool {
        self.store_core.is_none() || self.store_core != self.thread_core
    }

    /// Nobody is waited with any longer.
    pub(super) fn patience_over(&mut self) -> Wakes {
        self.patience.over();
        self.port.take_wakes()
    }
}

fn current_core() -> Option<u32> {
    // SAFETY: sched_getcpu has no demands.
    u32::try_from(unsafe { libc::sched_getcpu() }).ok()
}

/// Locks a station. What a panic has interrupted is still a NIC, and the
/// panic has been reported where it happened.
pub(super) fn lock<D>(station: &Mutex<Station<D>>) -> MutexGuard<'_, Station<D>> {
    station.lock().unwrap_or_else(PoisonError::into_inner)
}
