//! The NIC, its port and the state of its runner, under one lock. The holder of
//! the lock runs the NIC for one batch: the NIC thread, or an application thread
//! whose doorbell store was trapped.

use super::ack_timer::AckTimer;
use super::wait_policy::{Wait, WaitPolicy};
use super::{Budget, Driver};
use crate::fabric::port::Port;
use crate::fabric::waker::WakeSet;
use crate::spec::Nanos;

/// The most batches of [`SharedNic::process_arrived`]: peers that send all the
/// time must not hold up a command for ever.
const ARRIVED_BATCHES: usize = 64;

/// A NIC and its port on the fabric.
#[derive(Debug)]
pub struct SharedNic<D> {
    /// The NIC.
    pub driver: D,
    /// The NIC's port on the fabric.
    pub port: Port,
    pub(super) policy: WaitPolicy,
    /// When the NIC must run even without a doorbell or packet.
    pub(super) deadline: Option<Nanos>,
    /// Until when the NIC thread sleeps unless woken; `None` while it is awake.
    pub(super) sleeps_until: Option<Nanos>,
    pub(super) ack_timer: AckTimer,
    /// The core on which the NIC thread last became idle.
    thread_core: Option<u32>,
    /// The core on which a store was last trapped.
    store_core: Option<u32>,
    search: CoreSearch,
}

/// When a NIC thread that slept on the application's core is woken to look for another
/// one: the scheduler moves a thread that wakes to an idle core, but never one that sleeps.
#[derive(Debug)]
struct CoreSearch {
    /// Trapped stores until the next search.
    left: u32,
    interval: u32,
}

/// Number of trapped stores between two searches: initially, and at most. Doubled while
/// they find no core.
const SEARCH_INTERVALS: (u32, u32) = (64, 4096);

impl Default for CoreSearch {
    fn default() -> Self {
        Self {
            left: SEARCH_INTERVALS.0,
            interval: SEARCH_INTERVALS.0,
        }
    }
}

impl CoreSearch {
    /// Counts a trapped store without a core for the NIC thread. Returns whether to search.
    fn is_due(&mut self) -> bool {
        self.left -= 1;
        if self.left > 0 {
            return false;
        }
        self.interval = (self.interval * 2).min(SEARCH_INTERVALS.1);
        self.left = self.interval;
        true
    }
}

/// How the NIC thread is to idle.
#[derive(Debug)]
pub(super) struct IdlePlan {
    pub(super) wait: Wait,
    pub(super) deadline: Option<Nanos>,
    /// Whether peers have acks that they were not woken for, and the ack timer
    /// could not be started.
    pub(super) needs_ack_timeout: bool,
}

impl<D> SharedNic<D> {
    /// Returns a NIC that has not run yet.
    pub fn new(driver: D, port: Port) -> Self {
        Self {
            driver,
            port,
            policy: WaitPolicy::default(),
            deadline: None,
            sleeps_until: None,
            ack_timer: AckTimer::new(),
            thread_core: None,
            store_core: None,
            search: CoreSearch::default(),
        }
    }
}

impl<D: Driver> SharedNic<D> {
    /// Runs the NIC until it has processed the packets that have arrived. Wakes
    /// no peer: the caller must kick the NIC thread after unlocking.
    pub(crate) fn process_arrived(&mut self, now: Nanos) {
        for _ in 0..ARRIVED_BATCHES {
            let progress = self.driver.run(&[], &mut self.port, now, Budget::BATCH);
            self.deadline = progress.next_deadline;
            if !progress.worked {
                return;
            }
        }
    }

    /// Decides how the idle NIC thread waits.
    pub(super) fn plan_idle(&mut self, now: Nanos) -> IdlePlan {
        self.thread_core = current_core();
        let wait = self.policy.wait(now, self.thread_has_core());
        self.sleeps_until = match wait {
            Wait::Sleep(_) => Some(self.deadline.unwrap_or(Nanos::MAX)),
            Wait::Spin | Wait::Nap(_) => None,
        };
        let needs_ack_timeout = wait != Wait::Spin && self.port.has_delayed_wakes();
        IdlePlan {
            wait,
            deadline: self.deadline,
            needs_ack_timeout: needs_ack_timeout && !self.ack_timer.start(),
        }
    }

    /// Records a trapped store on the calling thread. Returns whether the NIC
    /// thread should spin from now on, or look for a core to spin on.
    pub(super) fn should_spin(&mut self, now: Nanos) -> bool {
        self.store_core = current_core();
        let has_core = self.thread_has_core();
        if has_core {
            self.search = CoreSearch::default();
        }
        let spins = self.policy.wait(now, has_core) == Wait::Spin;
        spins || (!has_core && self.search.is_due())
    }

    /// Returns whether the NIC thread can spin without taking the core of the
    /// application thread that rings.
    fn thread_has_core(&self) -> bool {
        self.store_core.is_none() || self.store_core != self.thread_core
    }

    /// Clears the ack timer. Returns the peers to wake.
    pub(super) fn delayed_ack_expired(&mut self) -> WakeSet {
        self.ack_timer.clear();
        self.port.take_wakes()
    }
}

fn current_core() -> Option<u32> {
    // SAFETY: sched_getcpu has no preconditions.
    u32::try_from(unsafe { libc::sched_getcpu() }).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn searches_for_a_core_become_rarer() {
        let mut search = CoreSearch::default();
        let mut searches = |stores: u32| (0..stores).filter(|_| search.is_due()).count();
        assert_eq!(searches(64), 1);
        assert_eq!(searches(128), 1);
        assert!((20..40).contains(&searches(100_000)));
    }
}
