//! The posting half of a queue, its lock, and which fast path it takes.

use core::cell::UnsafeCell;

use dat_engine::fast::{self, FastPath};
use dat_engine::{DataPath, Endpoint, SharedReceiveQueue};

use super::{PostLock, SpinGuard, SpinLock};
use crate::object::ia::Ia;

/// Which compiled version of the fast path the posts of a queue use. It never changes for a queue.
///
/// One byte, so that the most common mode is chosen by one comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PostMode(u8);

/// A data path that can be posted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Path {
    Direct,
    Verbs,
}

impl Path {
    /// Returns whether an endpoint is on this path.
    pub(crate) fn is_path_of(self, endpoint: &Endpoint) -> bool {
        match self {
            Self::Direct => fast::Direct::is_path_of(endpoint),
            Self::Verbs => fast::Verbs::is_path_of(endpoint),
        }
    }

    /// Returns whether a shared queue is on this path.
    pub(crate) fn is_path_of_shared(self, queue: &SharedReceiveQueue) -> bool {
        match self {
            Self::Direct => fast::Direct::is_path_of_shared(queue),
            Self::Verbs => fast::Verbs::is_path_of_shared(queue),
        }
    }
}

impl PostMode {
    /// The direct path without a lock.
    pub(crate) const DIRECT: Self = Self(0);
    /// Posts take the queue's lock. Otherwise the caller serialises them.
    const LOCKED: u8 = 1;
    const VERBS: u8 = 2;

    /// Returns the mode of the queues of an IA.
    pub(crate) fn of(ia: &Ia) -> Self {
        Self::new(&ia.device().info().path, ia.is_threadsafe())
    }

    /// Returns this mode, with a lock.
    pub(crate) fn with_lock(self) -> Self {
        Self(self.0 | Self::LOCKED)
    }

    #[inline(always)]
    pub(crate) fn path(self) -> Path {
        match self.0 & Self::VERBS {
            0 => Path::Direct,
            _ => Path::Verbs,
        }
    }

    /// Returns whether posts take the queue's lock.
    #[inline(always)]
    pub(crate) fn is_locked(self) -> bool {
        self.0 & Self::LOCKED != 0
    }

    /// Returns the mode of all queues of an IA on this path.
    fn new(path: &DataPath, threadsafe: bool) -> Self {
        let mode = match path {
            DataPath::Direct => Self::DIRECT,
            _ => Self(Self::VERBS),
        };
        match threadsafe {
            true => mode.with_lock(),
            false => mode,
        }
    }
}

/// Evaluates `$call` with `$P` and `$L` as the data path and the lock of `$mode`: where each post
/// chooses the version of the fast path.
macro_rules! for_mode {
    ($mode:expr, <$P:ident, $L:ident> $call:expr) => {{
        use $crate::object::post::{NoLock, Path, PostMode, SpinLock, for_mode};
        use dat_engine::fast::{Direct, Verbs};
        let mode = $mode;
        if mode == PostMode::DIRECT {
            for_mode!(@ Direct, NoLock, $P, $L, $call)
        } else {
            match (mode.path(), mode.is_locked()) {
                (Path::Direct, _) => for_mode!(@ Direct, SpinLock, $P, $L, $call),
                (Path::Verbs, false) => for_mode!(@ Verbs, NoLock, $P, $L, $call),
                (Path::Verbs, true) => for_mode!(@ Verbs, SpinLock, $P, $L, $call),
            }
        }
    }};
    (@ $path:ty, $lock:ty, $P:ident, $L:ident, $call:expr) => {{
        type $P = $path;
        type $L = $lock;
        $call
    }};
}
pub(crate) use for_mode;

/// The posting half of a queue: a `P` that one call at a time uses.
pub(crate) struct Posting<P> {
    mode: PostMode,
    lock: SpinLock,
    poster: UnsafeCell<P>,
}

// SAFETY: the poster is reached only through `try_enter` and `lock`. Either the lock is held then,
// or the caller has promised that no other call reaches the poster.
unsafe impl<P: Send> Sync for Posting<P> {}

/// The poster, borrowed until this is dropped.
pub(crate) struct Entered<'a, P, G> {
    pub(crate) poster: &'a mut P,
    /// Releases the lock, if there is one.
    pub(crate) guard: G,
}

impl<P> Posting<P> {
    pub(crate) fn new(mode: PostMode, poster: P) -> Self {
        Self {
            mode,
            lock: SpinLock::new(()),
            poster: UnsafeCell::new(poster),
        }
    }

    #[inline(always)]
    pub(crate) fn mode(&self) -> PostMode {
        self.mode
    }

    /// Takes the poster on the fast path. `None` if another thread has it.
    ///
    /// # Safety
    /// `L` is a lock if posts take one. If not, nothing else takes the poster until this one is
    /// dropped.
    #[inline(always)]
    pub(crate) unsafe fn try_enter<L: PostLock>(&self) -> Option<Entered<'_, P, L::Guard<'_>>> {
        let guard = L::try_lock(&self.lock)?;
        // SAFETY: the lock is held, or the caller excludes other calls.
        let poster = unsafe { &mut *self.poster.get() };
        Some(Entered { poster, guard })
    }

    /// Takes the poster, and the lock where posts take it.
    ///
    /// # Safety
    /// Where posts take no lock, nothing else takes the poster until this one is
    /// dropped.
    #[inline(always)]
    pub(crate) unsafe fn lock(&self) -> Entered<'_, P, Option<SpinGuard<'_>>> {
        let guard = self.mode.is_locked().then(|| self.lock.lock());
        // SAFETY: the lock is held, or the caller excludes other calls.
        let poster = unsafe { &mut *self.poster.get() };
        Entered { poster, guard }
    }
}

#[cfg(test)]
mod tests {
    use super::super::NoLock;
    use super::*;

    fn posting(threadsafe: bool) -> Posting<u64> {
        Posting::new(PostMode::new(&DataPath::Direct, threadsafe), 0)
    }

    fn is_free(posting: &Posting<u64>) -> bool {
        posting.lock.try_lock().is_some()
    }

    /// Counts in two steps, so that a race with another thread loses a count.
    fn count(poster: &mut u64) {
        let before = *poster;
        core::hint::spin_loop();
        *poster = core::hint::black_box(before) + 1;
    }

    #[test]
    fn fast_and_slow_path_of_a_threadsafe_queue_exclude_each_other() {
        let posting = posting(true);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        // SAFETY: posts take the lock.
                        match unsafe { posting.try_enter::<SpinLock>() } {
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
        let posting = posting(true);
        // SAFETY: posts take the lock.
        let entered = unsafe { posting.try_enter::<SpinLock>() };
        assert!(entered.is_some() && !is_free(&posting));
        // SAFETY: as above.
        assert!(unsafe { posting.try_enter::<SpinLock>() }.is_none());
        assert!(!is_free(&posting), "the first guard still holds it");
        drop(entered);
        assert!(is_free(&posting));
        // SAFETY: as above.
        let entered = unsafe { posting.lock() };
        assert!(entered.guard.is_some() && !is_free(&posting));
        drop(entered);
        assert!(is_free(&posting));
    }

    #[test]
    fn posts_that_the_caller_serialises_take_no_lock() {
        let posting = posting(false);
        {
            // SAFETY: there is one thread, and one poster at a time.
            let fast = unsafe { posting.try_enter::<NoLock>() };
            assert!(fast.is_some() && is_free(&posting));
        }
        // SAFETY: as above.
        let slow = unsafe { posting.lock() };
        assert!(slow.guard.is_none() && is_free(&posting));
    }
}
