//! State of the library that each process has for itself.
//!
//! A child of fork(2) has a copy of the parent's memory, but not its threads. If one of these held
//! a lock at the fork, the copy of the lock is never released; and what a list in the parent's
//! state names, such as open adapters or a running thread, does not exist in the child. So the
//! child begins with new state, and leaks its copy of the parent's.
//!
//! Decision: `docs/decisions/018-fork-invalidates-handles.md`

use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use dat_engine::sync::{Mutex, MutexGuard};

use crate::handle::forks;

/// A `T` of this process, behind a lock; initially the default.
pub(crate) struct PerProcess<T>(AtomicPtr<Generation<T>>);

struct Generation<T> {
    /// [`forks`] in the process that it belongs to.
    forks: u32,
    state: Mutex<T>,
}

impl<T: Default + Send + 'static> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// Locks the state of this process.
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        let found = self.0.load(Ordering::Acquire);
        // SAFETY: null, or leaked by `begin`.
        let latest = unsafe { found.as_ref() };
        let generation = match latest.filter(|latest| latest.forks == forks()) {
            Some(own) => own,
            None => self.begin(found),
        };
        generation.state.lock()
    }

    /// Replaces the state of another process, or none, by new state.
    #[cold]
    fn begin(&self, before: *mut Generation<T>) -> &Generation<T> {
        let new = Box::into_raw(Box::new(Generation {
            forks: forks(),
            state: Mutex::default(),
        }));
        let order = Ordering::AcqRel;
        let now = match self
            .0
            .compare_exchange(before, new, order, Ordering::Acquire)
        {
            Ok(_) => new,
            Err(others) => {
                // SAFETY: from `into_raw` above, and not shared.
                drop(unsafe { Box::from_raw(new) });
                // Another thread of this process was faster.
                others
            }
        };
        // SAFETY: from `into_raw`; what was stored once is never freed.
        unsafe { &*now }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;
    use crate::handle::tests::in_child;

    #[test]
    fn a_child_has_its_own_state_while_a_thread_of_the_parent_holds_the_lock() {
        static NUMBERS: PerProcess<Vec<u8>> = PerProcess::new();
        NUMBERS.lock().push(1);
        thread::scope(|scope| {
            let (held, is_held) = mpsc::channel();
            let (end, ended) = mpsc::channel::<()>();
            scope.spawn(move || {
                let numbers = NUMBERS.lock();
                held.send(()).expect("received");
                // Until the sender is dropped.
                let _ = ended.recv();
                drop(numbers);
            });
            is_held.recv().expect("the thread lives");
            let answer = in_child(|| {
                let mut numbers = NUMBERS.lock();
                numbers.extend([5, 6]);
                drop(numbers);
                let of_grandchild = in_child(|| NUMBERS.lock().len() as u8);
                NUMBERS.lock().len() as u8 + 10 * of_grandchild as u8
            });
            drop(end);
            assert_eq!(answer, 2);
        });
        assert_eq!(*NUMBERS.lock(), [1], "the parent's state stays");
    }

    #[test]
    fn threads_that_lock_first_lock_the_same_state() {
        for _ in 0..100 {
            let count: PerProcess<u32> = PerProcess::new();
            thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| *count.lock() += 1);
                }
            });
            assert_eq!(*count.lock(), 4);
        }
    }
}
