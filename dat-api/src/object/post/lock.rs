//! The lock of posts: a spin lock, because the locked section is short.

use dat_engine::sync;

/// The lock that posts to a queue take.
pub(crate) type SpinLock = sync::SpinLock<()>;

/// Holds a [`SpinLock`] until it is dropped.
pub(crate) type SpinGuard<'a> = sync::SpinGuard<'a, ()>;

/// How the fast path excludes other posts, as a compile-time parameter. It never waits: the slow
/// path does.
pub(crate) trait PostLock {
    /// Releases the lock when dropped.
    type Guard<'a>;

    /// Takes the lock, if there is one. `None` if another thread holds it.
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
        lock.try_lock()
    }
}
