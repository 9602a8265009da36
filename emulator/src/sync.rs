//! `std`'s locks without poisoning.
//!
//! A panic on one thread must not make later calls on other threads panic: the
//! panic has been reported where it happened, and the data behind the lock is
//! still usable.

use std::sync::{Condvar as StdCondvar, Mutex as StdMutex, PoisonError, TryLockError};
use std::time::Duration;

pub(crate) use std::sync::MutexGuard;

/// [`std::sync::Mutex`] without poisoning.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(StdMutex<T>);

impl<T> Mutex<T> {
    /// Returns an unlocked mutex.
    pub(crate) const fn new(value: T) -> Self {
        Self(StdMutex::new(value))
    }

    /// Locks the mutex, blocking until it is free.
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the mutex if it is free.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Returns the value. The exclusive reference makes locking unnecessary.
    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

/// [`std::sync::Condvar`] for [`Mutex`].
#[derive(Debug, Default)]
pub(crate) struct Condvar(StdCondvar);

impl Condvar {
    /// Wakes all threads that wait.
    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }

    /// Waits while `condition` returns `true`. Returns the guard.
    pub(crate) fn wait_while<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        condition: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'a, T> {
        self.0
            .wait_while(guard, condition)
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits while `condition` returns `true`, at most for `timeout`. Returns
    /// the guard.
    pub(crate) fn wait_timeout_while<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
        condition: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'a, T> {
        let waited = self.0.wait_timeout_while(guard, timeout, condition);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_under_the_lock_leaves_the_lock_usable() {
        let mutex = Mutex::new(1);
        let panicked = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let mut value = mutex.lock();
                *value = 2;
                panic!("under the lock");
            });
            thread.join().is_err()
        });
        assert!(panicked);
        assert_eq!(*mutex.lock(), 2);
        assert_eq!(mutex.try_lock().as_deref(), Some(&2));
        let guard = mutex.lock();
        assert!(mutex.try_lock().is_none());
        drop(guard);
    }
}
