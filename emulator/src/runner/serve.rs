//! Doorbells that are served on the thread that rings them.
//!
//! A store on a protected doorbell page is trapped ([`crate::trap`]), and the
//! thread that made it moves the NIC itself: no other thread has to be woken
//! for a message to leave. The NIC thread sleeps on meanwhile; what it has to
//! know (a nearer deadline, more work, a core of its own to spin on) it is
//! told by a kick.
//!
//! This runs in a signal handler. The signal is synchronous: it interrupts a
//! store on a doorbell page, so the thread is inside a driver library that
//! posts or arms, and in no allocator, no standard I/O and no part of the
//! emulator. What is locked and allocated here cannot be held by the very
//! thread it happens on. One thing could: a program whose handler of another
//! signal posts while its thread is in a command. So the station is never
//! waited for: the store is then left on the page, for the NIC thread.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use super::station::{Batch, Station};
use super::{Control, Driver, now};
use crate::fabric::bells::Bells;
use crate::limits::CQ_ARM_OFFSET;
use crate::nic::Nanos;
use crate::nic::spec::{UarPage, UarWrite};
use crate::trap::StoreTaker;
use crate::uar::{UarBank, is_doorbell};

/// Tries to lock the station: some microseconds, in which the NIC thread
/// ends its batch, if it has a core.
const PATIENCE: u32 = 100;
/// Batches on the application's thread; the NIC thread does the rest.
const BATCHES: u32 = 8;

/// Serves the trapped stores of one NIC.
#[derive(Debug)]
pub struct StoreServer<'a, D> {
    /// The NIC and its fabric.
    pub station: &'a Mutex<Station<D>>,
    /// Its doorbell pages.
    pub bank: &'a UarBank,
    /// How peers are woken.
    pub bells: Arc<Bells>,
    /// How the NIC thread is.
    pub control: &'a Control,
    /// A CQ was armed since the last post: the program sleeps for answers.
    pub arms: AtomicBool,
}

impl<D: Driver + Send> StoreTaker for StoreServer<'_, D> {
    fn page_of(&self, addr: usize) -> Option<UarPage> {
        self.bank.resolve(addr).map(|(page, _)| page)
    }

    fn store(&self, write: &UarWrite) {
        if !is_doorbell(write.offset) {
            // The rest of a BlueFlame copy: the NIC reads the ring instead.
            return;
        }
        match self.try_lock() {
            Some(station) => self.serve(station, write),
            None => {
                self.bank.deposit(write);
                self.control.kick();
            }
        }
    }

    fn let_through(&self) {
        // The NIC thread finds the store when it has been made: it naps
        // until then, and protects again later.
        self.bank.unprotect();
        if let Some(mut station) = self.try_lock() {
            station.policy.store_announced(now(), false);
        }
        self.control.kick();
    }
}

impl<D: Driver> StoreServer<'_, D> {
    fn serve(&self, mut station: MutexGuard<'_, Station<D>>, write: &UarWrite) {
        let is_arm = u32::from(write.offset) == CQ_ARM_OFFSET;
        let polls = !self.arms.swap(is_arm, Ordering::Relaxed) && !is_arm;
        let now = now();
        station.policy.work_arrived(now, true);
        let Batch {
            mut worked,
            mut wakes,
        } = station.run(std::slice::from_ref(write), now);
        for _ in 1..BATCHES {
            if !worked {
                break;
            }
            let more = station.run(&[], now);
            worked = more.worked;
            wakes = wakes.and(more.wakes);
        }
        // Nobody is about to sleep here and wake these later.
        wakes = wakes.and(station.port.take_wakes());
        let sleeps_too_long = station
            .sleeps_until
            .is_some_and(|until| station.deadline.unwrap_or(Nanos::MAX) < until);
        let is_to_spin = station.wants_spinning(now);
        drop(station);
        self.bells.ring(wakes);
        if polls && !wakes.is_empty() {
            // This thread polls for the answer next. If those who are to
            // give it share the core, they go first: otherwise every message
            // costs a slice of the scheduler.
            std::thread::yield_now();
        }
        if worked || sleeps_too_long || is_to_spin {
            self.control.kick();
        }
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, Station<D>>> {
        for _ in 0..PATIENCE {
            match self.station.try_lock() {
                Ok(station) => return Some(station),
                Err(TryLockError::Poisoned(station)) => return Some(station.into_inner()),
                Err(TryLockError::WouldBlock) => std::hint::spin_loop(),
            }
        }
        None
    }
}
