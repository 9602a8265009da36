//! How other threads reach the NIC thread.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::fabric::bells::Bells;

/// Requests of other threads to the NIC thread.
#[derive(Debug, Default)]
pub struct Control {
    kicked: AtomicBool,
    stopping: AtomicBool,
    stopped: AtomicBool,
    /// Threads that wait for the NIC's lock.
    waiting: AtomicU32,
    bells: OnceLock<Arc<Bells>>,
    /// The NIC is to stand still; see [`Control::hold`].
    held: AtomicBool,
    /// Whether it does.
    standing: Mutex<bool>,
    changed: Condvar,
}

impl Control {
    /// Names the sleeper that is to be woken.
    pub fn wakes(&self, bells: Arc<Bells>) {
        // A second sleeper does not exist: a thread is started once.
        let _ = self.bells.set(bells);
    }

    /// Makes the NIC run once, soon: something in it has changed.
    pub fn kick(&self) {
        self.kicked.store(true, Ordering::SeqCst);
        if let Some(bells) = self.bells.get() {
            bells.wake_own();
        }
    }

    /// Whether somebody has kicked, without taking the kick.
    #[must_use]
    pub fn is_kicked(&self) -> bool {
        self.kicked.load(Ordering::SeqCst)
    }

    /// Takes the kick, if there is one.
    #[must_use]
    pub fn take_kick(&self) -> bool {
        self.kicked.load(Ordering::Relaxed) && self.kicked.swap(false, Ordering::SeqCst)
    }

    /// Asks the NIC thread to end.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        drop(self.standing.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
        self.kick();
    }

    /// Whether it is to end.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Makes the NIC thread stand still until [`Control::release`]: for
    /// measurements that must not share their caches, or their core, with a
    /// NIC. Doorbells stay on their pages meanwhile, which are not protected,
    /// so that ringing them costs a store. `false` if it does not come to
    /// rest in time; then it goes on.
    #[must_use]
    pub fn hold(&self, patience: Duration) -> bool {
        self.held.store(true, Ordering::SeqCst);
        self.kick();
        let standing = self.standing.lock().unwrap_or_else(PoisonError::into_inner);
        let (standing, _) = self
            .changed
            .wait_timeout_while(standing, patience, |standing| !*standing)
            .unwrap_or_else(PoisonError::into_inner);
        let stands = *standing;
        drop(standing);
        if !stands {
            self.release();
        }
        stands
    }

    /// Lets the NIC thread go on. Comes back when it does.
    pub fn release(&self) {
        let standing = self.standing.lock().unwrap_or_else(PoisonError::into_inner);
        self.held.store(false, Ordering::SeqCst);
        self.changed.notify_all();
        drop(
            self.changed
                .wait_while(standing, |standing| *standing)
                .unwrap_or_else(PoisonError::into_inner),
        );
    }

    /// Whether the NIC thread is to stand still.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.held.load(Ordering::Relaxed)
    }

    /// Whether the NIC thread stands still.
    #[must_use]
    pub fn stands(&self) -> bool {
        *self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stands still as long as that is wanted; for the NIC thread.
    pub fn stand(&self) {
        let mut standing = self.standing.lock().unwrap_or_else(PoisonError::into_inner);
        *standing = true;
        self.changed.notify_all();
        let mut standing = self
            .changed
            .wait_while(standing, |_| self.is_held() && !self.is_stopping())
            .unwrap_or_else(PoisonError::into_inner);
        *standing = false;
        self.changed.notify_all();
    }

    /// The NIC thread has ended.
    pub fn note_stopped(&self) {
        self.stopped.store(true, Ordering::Release);
    }

    /// Waits for the end, but not for ever.
    pub fn wait_stopped(&self, patience: Duration) -> bool {
        let end = Instant::now() + patience;
        while !self.stopped.load(Ordering::Acquire) {
            if Instant::now() > end {
                return false;
            }
            std::thread::sleep(Duration::from_micros(50));
        }
        true
    }

    /// Runs `lock`, announcing that a thread waits: the NIC thread, which
    /// would otherwise take its lock again before anybody could wake up,
    /// steps back meanwhile.
    pub fn announce<T>(&self, lock: impl FnOnce() -> T) -> T {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let locked = lock();
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        locked
    }

    /// Lets those who wait for the lock go first.
    pub fn step_back(&self) {
        // Bounded, for a waiter may be stopped in a debugger.
        for _ in 0..1000 {
            if self.waiting.load(Ordering::Relaxed) == 0 {
                return;
            }
            std::thread::yield_now();
        }
    }
}
