//! The lock of a completion queue. A poll takes it, and hardly ever waits; so
//! it is one exchange to get and one store to leave, where `std`'s also has to
//! see whether somebody sleeps on it, or has panicked.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicBool, Ordering};

/// Something that one thread has at a time.
pub(super) struct Lock<T> {
    taken: AtomicBool,
    inside: UnsafeCell<T>,
}

// SAFETY: what is inside is reached by who took the lock, alone; it moves
// between threads, but is not shared.
unsafe impl<T: Send> Sync for Lock<T> {}

/// What is inside a [`Lock`], until this is dropped.
pub(super) struct Locked<'a, T>(&'a Lock<T>);

impl<T> Lock<T> {
    pub(super) const fn new(inside: T) -> Self {
        Self {
            taken: AtomicBool::new(false),
            inside: UnsafeCell::new(inside),
        }
    }

    #[inline(always)]
    pub(super) fn lock(&self) -> Locked<'_, T> {
        if self.taken.swap(true, Ordering::Acquire) {
            self.wait();
        }
        Locked(self)
    }

    /// Who has it polls a queue to its end at most; but may not be running.
    #[cold]
    #[inline(never)]
    fn wait(&self) {
        let mut rounds = 0u32;
        while self.taken.load(Ordering::Relaxed) || self.taken.swap(true, Ordering::Acquire) {
            rounds = rounds.saturating_add(1);
            match rounds {
                0..100 => core::hint::spin_loop(),
                100..200 => std::thread::yield_now(),
                // It may have a lower priority on the same core.
                _ => std::thread::sleep(core::time::Duration::from_micros(20)),
            }
        }
    }
}

impl<T> Deref for Locked<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the lock is ours.
        unsafe { &*self.0.inside.get() }
    }
}

impl<T> DerefMut for Locked<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock is ours, and this is borrowed for itself.
        unsafe { &mut *self.0.inside.get() }
    }
}

impl<T> Drop for Locked<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.taken.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_is_inside_at_a_time() {
        let rounds: u64 = if cfg!(miri) { 20 } else { 20_000 };
        let lock = Lock::new(0u64);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..rounds {
                        let mut inside = lock.lock();
                        // Two steps, which another thread would come between.
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
        let lock = Lock::new(1);
        let inside = std::panic::AssertUnwindSafe(|| {
            let _inside = lock.lock();
            panic!("on purpose");
        });
        assert!(std::panic::catch_unwind(inside).is_err());
        assert_eq!(*lock.lock(), 1);
    }
}
