//! Doorbells that are served on the thread that rings them.
//!
//! A store to a protected doorbell page is trapped ([`crate::trap`]), and the
//! storing thread runs the NIC itself, so no other thread has to be woken to
//! send a message. The NIC thread keeps sleeping; it is kicked if its deadline
//! has moved closer, if there is more work, or if it has a core to spin on.
//!
//! This code runs in a signal handler. The signal is synchronous: it interrupts
//! a store to a doorbell page. The thread is therefore in a driver library that
//! posts a request or arms a CQ, and not in the allocator, standard I/O or the
//! emulator, so it cannot hold a lock that is taken here. One exception is
//! possible: a program may post from the handler of another signal while the
//! interrupted thread executes a command. For that case the NIC's lock is only
//! tried for a bounded time; if it stays locked, the store is left on the page
//! for the NIC thread.
//!
//! Decision: `docs/decisions/046-doorbell-on-the-ringing-thread.md`

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{mem, slice};

use super::shared_nic::SharedNic;
use super::{Budget, Control, Driver, now};
use crate::fabric::waker::PeerWaker;
use crate::limits::CQ_ARM_OFFSET;
use crate::spec::{Nanos, UarPage, UarWrite};
use crate::sync::{Mutex, MutexGuard};
use crate::trap::StoreHandler;
use crate::uar::{UarPages, is_doorbell};

/// Attempts to lock the NIC: some microseconds, enough for the NIC thread to
/// finish its batch if it has a core.
const LOCK_ATTEMPTS: u32 = 100;
/// Maximum number of batches on the application's thread; the NIC thread does
/// the rest.
const MAX_BATCHES: u32 = 8;

/// Handles the trapped stores of one NIC.
#[derive(Debug)]
pub struct TrappedStoreHandler<'a, D> {
    /// The NIC and its port.
    pub shared_nic: &'a Mutex<SharedNic<D>>,
    /// The NIC's doorbell pages.
    pub uar: &'a UarPages,
    /// Wakes peers.
    pub waker: Arc<PeerWaker>,
    /// Requests to the NIC thread.
    pub control: &'a Control,
    /// Whether a CQ was armed since the last post, that is, whether the program
    /// sleeps until a completion.
    pub armed: AtomicBool,
}

impl<D: Driver + Send> StoreHandler for TrappedStoreHandler<'_, D> {
    fn page_of(&self, addr: usize) -> Option<UarPage> {
        self.uar.resolve(addr).map(|(page, _)| page)
    }

    fn store(&self, write: &UarWrite) {
        if !is_doorbell(write.offset) {
            // The rest of a BlueFlame copy: the NIC reads the WQE from the ring.
            return;
        }
        let Some(mut shared_nic) = self.try_lock() else {
            self.uar.deposit(write);
            return self.control.kick();
        };
        let is_arm = u32::from(write.offset) == CQ_ARM_OFFSET;
        let polls = !self.armed.swap(is_arm, Ordering::Relaxed) && !is_arm;
        let now = now();
        let nic = &mut *shared_nic;
        nic.policy.store_trapped(now);
        let mut doorbells = slice::from_ref(write);
        let worked = (0..MAX_BATCHES).all(|_| {
            let doorbells = mem::take(&mut doorbells);
            let progress = nic.driver.run(doorbells, &mut nic.port, now, Budget::BATCH);
            nic.deadline = progress.next_deadline;
            progress.worked
        });
        // No sleep follows on this thread that would wake the others later.
        let wakes = nic.port.take_wakes();
        let deadline = nic.deadline.unwrap_or(Nanos::MAX);
        let oversleeps = nic.sleeps_until.is_some_and(|until| deadline < until);
        let must_spin = nic.should_spin(now);
        drop(shared_nic);
        self.waker.wake(wakes);
        if polls && !wakes.is_empty() {
            // This thread polls for the reply next. If the peers that send the
            // reply share its core, they must run first; otherwise every message
            // costs a time slice.
            std::thread::yield_now();
        }
        if worked || oversleeps || must_spin {
            self.control.kick();
        }
    }

    fn allow_store(&self) {
        // The NIC thread finds the store after it has been made: it naps until
        // then, and protects the page again later.
        self.uar.unprotect();
        if let Some(mut shared_nic) = self.try_lock() {
            shared_nic.policy.store_announced(now(), false);
        }
        self.control.kick();
    }
}

impl<D> TrappedStoreHandler<'_, D> {
    fn try_lock(&self) -> Option<MutexGuard<'_, SharedNic<D>>> {
        for _ in 0..LOCK_ATTEMPTS {
            if let Some(shared_nic) = self.shared_nic.try_lock() {
                return Some(shared_nic);
            }
            std::hint::spin_loop();
        }
        None
    }
}
