//! The posting half of a queue, and its lock.

use core::cell::UnsafeCell;
use core::mem::forget;

use dat_engine::sync::SpinLock;

/// The lock of posts: a spin lock, because the locked section is short. Where the caller serialises
/// posts, it is never taken.
struct PostLock {
    is_used: bool,
    lock: SpinLock<()>,
}

/// Releases the lock of posts, if they take it, when it is dropped.
pub(crate) struct PostGuard<'a>(&'a PostLock);

impl Drop for PostGuard<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.0.is_used {
            // SAFETY: this guard stands for the one that was forgotten.
            unsafe { self.0.lock.unlock() };
        }
    }
}

/// The posting half of a queue: a `P` that one call at a time uses.
pub(crate) struct Posting<P> {
    lock: PostLock,
    poster: UnsafeCell<P>,
}

// SAFETY: the poster is reached only through `try_enter` and `lock`. Either the lock is held then,
// or the caller has promised that no other call reaches the poster.
unsafe impl<P: Send> Sync for Posting<P> {}

/// The poster, borrowed until this is dropped.
pub(crate) struct Entered<'a, P> {
    pub(crate) poster: &'a mut P,
    pub(crate) guard: PostGuard<'a>,
}

impl<P> Posting<P> {
    /// Returns the posting half with this poster; `takes_lock` says whether posts take the lock.
    pub(crate) fn new(takes_lock: bool, poster: P) -> Self {
        Self {
            lock: PostLock {
                is_used: takes_lock,
                lock: SpinLock::new(()),
            },
            poster: UnsafeCell::new(poster),
        }
    }

    /// Takes the poster, and the lock if posts take it, without waiting. `None` if another thread
    /// holds the lock.
    ///
    /// # Safety
    /// Where posts take no lock, nothing else takes the poster until this one is dropped.
    #[inline(always)]
    pub(crate) unsafe fn try_enter(&self) -> Option<Entered<'_, P>> {
        if self.lock.is_used {
            forget(self.lock.lock.try_lock()?);
        }
        Some(Entered {
            // SAFETY: the lock is held, or the caller excludes other calls.
            poster: unsafe { &mut *self.poster.get() },
            guard: PostGuard(&self.lock),
        })
    }

    /// Takes the poster, and the lock if posts take it.
    ///
    /// # Safety
    /// As for [`Self::try_enter`].
    #[inline(always)]
    pub(crate) unsafe fn lock(&self) -> Entered<'_, P> {
        if self.lock.is_used {
            forget(self.lock.lock.lock());
        }
        Entered {
            // SAFETY: as in `try_enter`.
            poster: unsafe { &mut *self.poster.get() },
            guard: PostGuard(&self.lock),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_free(posting: &Posting<u64>) -> bool {
        posting.lock.lock.try_lock().is_some()
    }

    /// Counts in two steps, so that a race with another thread loses a count.
    fn count(poster: &mut u64) {
        let before = *poster;
        core::hint::spin_loop();
        *poster = core::hint::black_box(before) + 1;
    }

    #[test]
    fn fast_and_slow_path_of_a_threadsafe_queue_exclude_each_other() {
        let posting = Posting::new(true, 0);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        // SAFETY: posts take the lock.
                        match unsafe { posting.try_enter() } {
                            Some(entered) => count(entered.poster),
                            // SAFETY: as above.
                            None => count(unsafe { posting.lock() }.poster),
                        }
                    }
                });
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        // SAFETY: posts take the lock.
                        count(unsafe { posting.lock() }.poster);
                    }
                });
            }
        });
        // SAFETY: posts take the lock.
        assert_eq!(*unsafe { posting.lock() }.poster, 40_000);
    }

    #[test]
    fn the_poster_is_taken_until_the_guard_is_dropped() {
        let posting = Posting::new(true, 0);
        // SAFETY: posts take the lock.
        let entered = unsafe { posting.try_enter() };
        assert!(entered.is_some() && !is_free(&posting));
        // SAFETY: as above.
        assert!(unsafe { posting.try_enter() }.is_none());
        assert!(!is_free(&posting), "the first guard still holds it");
        drop(entered);
        assert!(is_free(&posting));
        // SAFETY: as above.
        let entered = unsafe { posting.lock() };
        assert!(!is_free(&posting));
        drop(entered);
        assert!(is_free(&posting));
    }

    #[test]
    fn posts_that_the_caller_serialises_take_no_lock() {
        let posting = Posting::new(false, 0);
        {
            // SAFETY: there is one thread, and one poster at a time.
            let fast = unsafe { posting.try_enter() };
            assert!(fast.is_some() && is_free(&posting));
        }
        // SAFETY: as above.
        let slow = unsafe { posting.lock() };
        assert!(is_free(&posting));
        drop(slow);
        assert!(is_free(&posting));
    }
}
