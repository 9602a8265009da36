//! A lock that is held for a few instructions.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicBool, Ordering};

use super::Backoff;

/// A lock for critical sections that are shorter than putting a thread to
/// sleep: one exchange takes it, one store releases it. `std`'s lock also has
/// to check whether a thread sleeps on it, or has panicked.
#[derive(Debug, Default)]
pub struct SpinLock<T> {
    locked: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: only the holder of the lock reaches the value; the value moves between
// threads, but is not shared.
unsafe impl<T: Send> Sync for SpinLock<T> {}

/// Access to the value of a [`SpinLock`]; dropping it releases the lock.
#[must_use]
pub struct SpinGuard<'a, T>(&'a SpinLock<T>);

// SAFETY: threads that share a guard get `&T`. Without this they would share the
// guard of any value, because the lock itself is shared.
unsafe impl<T: Sync> Sync for SpinGuard<'_, T> {}

impl<T> SpinLock<T> {
    /// Returns a lock that is free.
    pub const fn new(value: T) -> Self {
        Self {
            locked: AtomicBool::new(false),
            value: UnsafeCell::new(value),
        }
    }

    /// Takes the lock, waiting until it is free.
    #[inline(always)]
    pub fn lock(&self) -> SpinGuard<'_, T> {
        if self.locked.swap(true, Ordering::Acquire) {
            self.wait();
        }
        SpinGuard(self)
    }

    /// Takes the lock if it is free.
    #[inline(always)]
    pub fn try_lock(&self) -> Option<SpinGuard<'_, T>> {
        let was_locked = self.locked.swap(true, Ordering::Acquire);
        (!was_locked).then(|| SpinGuard(self))
    }

    /// Releases the lock.
    ///
    /// # Safety
    /// This thread holds it, and has forgotten the guard.
    #[inline(always)]
    pub unsafe fn unlock(&self) {
        self.locked.store(false, Ordering::Release);
    }

    /// Takes the lock after it was found taken.
    #[cold]
    #[inline(never)]
    fn wait(&self) {
        let mut backoff = Backoff::new();
        // Loads until the lock looks free: exchanges would take the cache line
        // from the holder.
        while self.locked.load(Ordering::Relaxed) || self.locked.swap(true, Ordering::Acquire) {
            backoff.wait();
        }
    }
}

impl<T> Deref for SpinGuard<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: this thread holds the lock.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for SpinGuard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this thread holds the lock, and the guard is borrowed alone.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for SpinGuard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: the guard is the one that holds it, and is not used again.
        unsafe { self.0.unlock() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_is_inside_at_a_time() {
        let rounds: u64 = if cfg!(miri) { 20 } else { 20_000 };
        let lock = SpinLock::new(0u64);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..rounds {
                        let mut inside = lock.lock();
                        // Two steps: without the lock, another thread could run between them.
                        let before = *inside;
                        core::hint::spin_loop();
                        *inside = before + 1;
                    }
                });
            }
        });
        assert_eq!(*lock.lock(), 3 * rounds);
    }

    #[test]
    fn a_panic_inside_leaves_the_lock_free() {
        let lock = SpinLock::new(1);
        let held = lock.lock();
        assert!(lock.try_lock().is_none());
        drop(held);
        let inside = std::panic::AssertUnwindSafe(|| {
            let _inside = lock.lock();
            panic!("on purpose");
        });
        assert!(std::panic::catch_unwind(inside).is_err());
        assert_eq!(*lock.lock(), 1);
    }
}
