//! `std`'s locks without poisoning.
//!
//! A panic in this library ends only the call in which it happens. Code under a
//! lock makes the guarded data consistent before anything that can panic, so the
//! next caller may use the data.
//!
//! The locks are built on `std` and not on parking_lot, whose contended locks use a
//! table that all locks of the process share. A child of fork(2) may find that
//! table locked for ever.

use std::sync::{
    Condvar as StdCondvar, Mutex as StdMutex, MutexGuard, PoisonError, RwLock as StdRwLock,
    RwLockReadGuard, RwLockWriteGuard, TryLockError,
};
use std::time::Duration;

/// [`std::sync::Mutex`] without poisoning.
#[derive(Debug, Default)]
pub struct Mutex<T>(StdMutex<T>);

impl<T> Mutex<T> {
    /// Returns a lock that is free.
    pub const fn new(value: T) -> Self {
        Self(StdMutex::new(value))
    }

    /// Returns the value.
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Mutex<T> {
    /// Takes the lock, sleeping until it is free.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Returns the value; `&mut self` shows that no other thread uses it.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

/// [`std::sync::RwLock`] without poisoning.
#[derive(Debug, Default)]
pub struct RwLock<T>(StdRwLock<T>);

impl<T> RwLock<T> {
    /// Returns a lock that is free.
    pub const fn new(value: T) -> Self {
        Self(StdRwLock::new(value))
    }
}

impl<T> RwLock<T> {
    /// Takes the lock together with other readers.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the lock alone.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// [`std::sync::Condvar`] for [`Mutex`].
#[derive(Debug, Default)]
pub struct Condvar(StdCondvar);

impl Condvar {
    /// Returns a condition variable that no thread waits on.
    pub const fn new() -> Self {
        Self(StdCondvar::new())
    }

    /// Releases the lock, sleeps until woken, and takes the lock again. May
    /// return without being woken.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.0.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`Self::wait`], while a condition holds, and for this long at most.
    pub fn wait_timeout_while<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        longest: Duration,
        condition: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'a, T> {
        let waited = self.0.wait_timeout_while(guard, longest, condition);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Wakes all threads that wait.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn a_panic_while_a_lock_is_held_leaves_it_usable() {
        let mut mutex = Mutex::new(1);
        let rw_lock = RwLock::new(1);
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _held = (mutex.lock(), rw_lock.write());
            panic!("on purpose");
        }));
        assert!(panicked.is_err());
        assert_eq!((*mutex.lock(), *rw_lock.read()), (1, 1));
        *rw_lock.write() += 1;
        *mutex.try_lock().expect("free") += 1;
        *mutex.get_mut() += 1;
        assert_eq!((mutex.into_inner(), *rw_lock.read()), (3, 2));
    }

    #[test]
    fn a_lock_that_is_held_is_not_taken_twice() {
        let mutex = Mutex::new(());
        let _held = mutex.lock();
        assert!(mutex.try_lock().is_none());
    }

    #[test]
    fn a_waiter_goes_on_though_the_thread_that_woke_it_panicked() {
        let (mutex, changed) = (Mutex::new(false), Condvar::new());
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let mut done = mutex.lock();
                while !*done {
                    done = changed.wait(done);
                }
            });
            let panicking = scope.spawn(|| {
                let mut done = mutex.lock();
                *done = true;
                changed.notify_all();
                panic!("on purpose");
            });
            assert!(panicking.join().is_err());
            assert!(waiter.join().is_ok());
        });
    }
}
