//! A lock that costs its only user almost nothing, and that can be opened to other
//! threads later.
//!
//! While biased, entering is two plain stores and a load; no atomic exchange.
//! Opening it to a second thread makes the kernel run a memory barrier on every
//! thread of the process (`membarrier(2)`). After that, either the second
//! thread reads that the first one is inside, and waits, or the first one reads
//! that the lock is no longer biased. If the kernel lacks the call, the lock is
//! never biased.

use core::sync::atomic::{AtomicBool, Ordering, compiler_fence};

use super::{Backoff, SpinLock};

/// A lock for one thread that can be opened to others, as described above.
#[derive(Debug)]
pub(crate) struct BiasedLock {
    /// Whether more than one thread may take the lock.
    shared: AtomicBool,
    /// Set by the only user while it is inside.
    inside: AtomicBool,
    /// The lock for several users.
    lock: SpinLock<()>,
}

impl BiasedLock {
    /// Returns a lock for one thread, until [`Self::revoke_bias`].
    pub(crate) fn new() -> Self {
        Self {
            shared: AtomicBool::new(!membarrier::register()),
            inside: AtomicBool::new(false),
            lock: SpinLock::new(()),
        }
    }

    /// Runs `critical` if the lock is still biased to its only user. Otherwise
    /// returns `None` without the call; the caller then uses [`Self::with`].
    ///
    /// Before [`Self::revoke_bias`] has returned, only one thread calls this.
    #[inline(always)]
    pub(crate) fn try_biased<R>(&self, critical: impl FnOnce() -> R) -> Option<R> {
        self.inside.store(true, Ordering::Relaxed);
        // The processor may still delay the store beyond the load; membarrier
        // makes up for that.
        compiler_fence(Ordering::SeqCst);
        if self.shared.load(Ordering::Relaxed) {
            self.inside.store(false, Ordering::Relaxed);
            return None;
        }
        let result = critical();
        self.inside.store(false, Ordering::Release);
        Some(result)
    }

    /// Runs `critical` while no other thread is inside.
    ///
    /// Before [`Self::revoke_bias`] has returned, only one thread calls this.
    pub(crate) fn with<R>(&self, critical: impl Fn() -> R) -> R {
        match self.try_biased(&critical) {
            Some(result) => result,
            None => self.with_lock(critical),
        }
    }

    #[cold]
    #[inline(never)]
    fn with_lock<R>(&self, critical: impl FnOnce() -> R) -> R {
        let _held = self.lock.lock();
        critical()
    }

    /// Allows several threads to call [`Self::with`] from now on. Callers
    /// exclude each other, so only the first one waits until the single user
    /// has left.
    pub(crate) fn revoke_bias(&self) {
        if self.shared.swap(true, Ordering::SeqCst) {
            return;
        }
        membarrier::everywhere();
        // The user was inside before the barrier: a few instructions, unless
        // its thread is not running.
        let mut backoff = Backoff::new();
        while self.inside.load(Ordering::Acquire) {
            backoff.wait();
        }
    }
}

impl Default for BiasedLock {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(not(miri))]
mod membarrier {
    use std::sync::OnceLock;

    // linux/membarrier.h
    const PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
    const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;

    fn call(command: libc::c_int) -> bool {
        // SAFETY: takes three integers and touches no memory of ours.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
    }

    /// Registers the process for the call, once. Returns whether the kernel supports it.
    pub(super) fn register() -> bool {
        static REGISTERED: OnceLock<bool> = OnceLock::new();
        *REGISTERED.get_or_init(|| call(REGISTER_PRIVATE_EXPEDITED))
    }

    /// Executes a full barrier on every running thread of the process.
    pub(super) fn everywhere() {
        // Cannot fail once registered; a child of fork registers again.
        if !call(PRIVATE_EXPEDITED) {
            call(REGISTER_PRIVATE_EXPEDITED);
            call(PRIVATE_EXPEDITED);
        }
    }
}

#[cfg(miri)]
mod membarrier {
    pub(super) fn register() -> bool {
        false
    }

    pub(super) fn everywhere() {}
}

#[cfg(test)]
mod tests {
    use core::cell::UnsafeCell;
    use std::sync::atomic::AtomicU64;

    use super::*;

    struct Counter {
        lock: BiasedLock,
        value: UnsafeCell<u64>,
        entered: AtomicU64,
    }

    // SAFETY: `value` is only touched inside `lock`.
    unsafe impl Sync for Counter {}

    impl Counter {
        fn bump(&self) {
            self.lock.with(|| {
                // SAFETY: inside the lock.
                let value = unsafe { &mut *self.value.get() };
                *value += 1;
            });
            self.entered.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn no_increment_is_lost_when_a_second_thread_joins() {
        let rounds: u64 = if cfg!(miri) { 50 } else { 100_000 };
        let counter = Counter {
            lock: BiasedLock::new(),
            value: UnsafeCell::new(0),
            entered: AtomicU64::new(0),
        };
        std::thread::scope(|scope| {
            scope.spawn(|| (0..rounds).for_each(|_| counter.bump()));
            scope.spawn(|| {
                while counter.entered.load(Ordering::Relaxed) == 0 {
                    std::thread::yield_now();
                }
                counter.lock.revoke_bias();
                (0..rounds).for_each(|_| counter.bump());
            });
        });
        assert_eq!(counter.value.into_inner(), 2 * rounds);
    }
}
