//! Requests from other threads to the NIC thread.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::fabric::waker::PeerWaker;
use crate::sync::{Condvar, Mutex};

/// Requests of other threads to the NIC thread.
#[derive(Debug, Default)]
pub struct Control {
    kicked: AtomicBool,
    stopping: AtomicBool,
    stopped: AtomicBool,
    /// Number of threads that wait for the NIC's lock.
    lock_waiters: AtomicU32,
    waker: OnceLock<Arc<PeerWaker>>,
    /// The NIC thread is to pause; see [`Control::pause`].
    pause_requested: AtomicBool,
    /// Whether it is paused.
    paused: Mutex<bool>,
    changed: Condvar,
}

impl Control {
    /// Sets what wakes the NIC thread.
    pub fn set_waker(&self, waker: Arc<PeerWaker>) {
        // Set once: the thread is started once.
        let _ = self.waker.set(waker);
    }

    /// Requests that the NIC run once soon, since its state has changed.
    pub fn kick(&self) {
        self.kicked.store(true, Ordering::SeqCst);
        if let Some(waker) = self.waker.get() {
            waker.wake_own();
        }
    }

    /// Returns whether a kick is pending. Does not take it.
    #[must_use]
    pub fn is_kicked(&self) -> bool {
        self.kicked.load(Ordering::SeqCst)
    }

    /// Takes the kick. Returns whether one was pending.
    #[must_use]
    pub fn take_kick(&self) -> bool {
        self.kicked.load(Ordering::Relaxed) && self.kicked.swap(false, Ordering::SeqCst)
    }

    /// Asks the NIC thread to exit.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        drop(self.paused.lock());
        self.changed.notify_all();
        self.kick();
    }

    /// Returns whether the NIC thread is to exit.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Pauses the NIC thread until [`Control::resume`], for measurements that
    /// must not share caches or a core with it. Meanwhile doorbells stay on
    /// their pages, which are not protected, so that a doorbell costs one
    /// store. Returns `false`, with the thread running, if it does not pause
    /// within `timeout`.
    #[must_use]
    pub fn pause(&self, timeout: Duration) -> bool {
        self.pause_requested.store(true, Ordering::SeqCst);
        self.kick();
        let paused = self.paused.lock();
        let paused = self
            .changed
            .wait_timeout_while(paused, timeout, |paused| !*paused);
        let is_paused = *paused;
        drop(paused);
        if !is_paused {
            self.resume();
        }
        is_paused
    }

    /// Resumes the NIC thread and returns when it runs.
    pub fn resume(&self) {
        let paused = self.paused.lock();
        self.pause_requested.store(false, Ordering::SeqCst);
        self.changed.notify_all();
        drop(self.changed.wait_while(paused, |paused| *paused));
    }

    /// Returns whether a pause of the NIC thread is requested.
    #[must_use]
    pub fn pause_requested(&self) -> bool {
        self.pause_requested.load(Ordering::Relaxed)
    }

    /// Returns whether the NIC thread is paused.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        *self.paused.lock()
    }

    /// Blocks the NIC thread while a pause is requested.
    pub fn wait_while_paused(&self) {
        let mut paused = self.paused.lock();
        *paused = true;
        self.changed.notify_all();
        let mut paused = self
            .changed
            .wait_while(paused, |_| self.pause_requested() && !self.is_stopping());
        *paused = false;
        self.changed.notify_all();
    }

    /// Marks the NIC thread as stopped.
    pub fn mark_stopped(&self) {
        self.stopped.store(true, Ordering::Release);
    }

    /// Waits until the NIC thread has stopped, at most for `timeout`. Returns
    /// whether it has.
    pub fn wait_stopped(&self, timeout: Duration) -> bool {
        let end = Instant::now() + timeout;
        while !self.stopped.load(Ordering::Acquire) {
            if Instant::now() > end {
                return false;
            }
            std::thread::sleep(Duration::from_micros(50));
        }
        true
    }

    /// Runs `lock` and counts the calling thread as a waiter meanwhile. The NIC
    /// thread yields while there are waiters; otherwise it would take the lock
    /// again before a waiter wakes up.
    pub fn with_priority<T>(&self, lock: impl FnOnce() -> T) -> T {
        self.lock_waiters.fetch_add(1, Ordering::SeqCst);
        let locked = lock();
        self.lock_waiters.fetch_sub(1, Ordering::SeqCst);
        locked
    }

    /// Yields the processor while other threads wait for the lock.
    pub fn yield_to_waiters(&self) {
        // Bounded, since a waiter may be stopped in a debugger.
        for _ in 0..1000 {
            if self.lock_waiters.load(Ordering::Relaxed) == 0 {
                return;
            }
            std::thread::yield_now();
        }
    }
}
