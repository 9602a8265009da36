//! The lock of posts: a spin lock, since what it guards is short.

use core::sync::atomic::{AtomicBool, Ordering};

/// How the fast path keeps other posts away, known when it is compiled. It does
/// not wait: waiting is the slow path's.
pub(crate) trait PostLock {
    /// Releases the lock when dropped.
    type Guard<'a>;

    /// Takes the lock, if this is one. `None` if another thread holds it.
    fn try_lock(lock: &SpinLock) -> Option<Self::Guard<'_>>;
}

/// No lock: the caller serialises posts.
pub(crate) enum NoLock {}

impl PostLock for NoLock {
    type Guard<'a> = ();

    #[inline(always)]
    fn try_lock(_: &SpinLock) -> Option<()> {
        Some(())
    }
}

impl PostLock for SpinLock {
    type Guard<'a> = SpinGuard<'a>;

    #[inline(always)]
    fn try_lock(lock: &SpinLock) -> Option<SpinGuard<'_>> {
        let was_free = !lock.busy.swap(true, Ordering::Acquire);
        was_free.then(|| SpinGuard(lock))
    }
}

/// A lock that threads wait for without sleeping.
#[derive(Debug)]
pub(crate) struct SpinLock {
    busy: AtomicBool,
}

/// Holds a [`SpinLock`] until it is dropped.
pub(crate) struct SpinGuard<'a>(&'a SpinLock);

impl SpinLock {
    pub(crate) const fn new() -> Self {
        Self {
            busy: AtomicBool::new(false),
        }
    }

    #[inline(always)]
    pub(crate) fn lock(&self) -> SpinGuard<'_> {
        if self.busy.swap(true, Ordering::Acquire) {
            self.spin();
        }
        SpinGuard(self)
    }

    #[cfg(test)]
    pub(crate) fn is_locked(&self) -> bool {
        self.busy.load(Ordering::Relaxed)
    }

    #[cold]
    #[inline(never)]
    fn spin(&self) {
        let mut rounds = 0u32;
        while self.busy.swap(true, Ordering::Acquire) {
            rounds = rounds.saturating_add(1);
            if rounds < 100 {
                core::hint::spin_loop();
            } else {
                // The thread that holds the lock may need this core.
                std::thread::yield_now();
            }
        }
    }
}

impl Drop for SpinGuard<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.busy.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::AtomicU64;

    use super::*;

    #[test]
    fn calls_on_a_threadsafe_endpoint_take_turns() {
        let (lock, count) = (SpinLock::new(), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        let _guard = lock.lock();
                        // Two steps, which another thread would come between.
                        let before = count.load(Ordering::Relaxed);
                        core::hint::spin_loop();
                        count.store(before + 1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(count.into_inner(), 40_000);
    }
}
