//! How other threads reach the NIC thread.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
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
        self.kick();
    }

    /// Whether it is to end.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
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
