//! Counting the users of an object, which cannot be freed while it has some.

use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

/// Set once the object is being freed: no new users are accepted.
const CLOSED: u32 = 1 << 31;

/// Counts the users of an object.
#[derive(Debug, Default)]
pub(crate) struct Usage(AtomicU32);

/// An object that counts its users.
pub(crate) trait Counted {
    fn usage(&self) -> &Usage;
}

impl Usage {
    /// Returns how many users there are.
    pub(crate) fn count(&self) -> u32 {
        self.0.load(Ordering::Acquire) & !CLOSED
    }

    /// Closes the object to new users; returns `false`, with nothing changed, if it has users, or
    /// is closed already.
    pub(crate) fn close(&self) -> bool {
        self.0
            .compare_exchange(0, CLOSED, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Reverses a successful [`Self::close`].
    pub(crate) fn reopen(&self) {
        self.0.fetch_and(!CLOSED, Ordering::AcqRel);
    }

    /// Closes the object to new users, even if it has users.
    pub(crate) fn close_anyway(&self) {
        self.0.fetch_or(CLOSED, Ordering::AcqRel);
    }

    /// Counts one more user; returns `false` if the object is closed.
    pub(crate) fn begin(&self) -> bool {
        let begun = self
            .0
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |count| {
                (count & CLOSED == 0).then_some(count + 1)
            });
        begun.is_ok()
    }

    /// Counts one user less.
    pub(crate) fn end(&self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// An object that is kept, and counted as in use, until this is dropped.
#[derive(Debug)]
pub(crate) struct Use<T: Counted>(Arc<T>);

impl<T: Counted> Use<T> {
    /// Returns `None` if the object is being freed.
    pub(crate) fn of(object: &Arc<T>) -> Option<Self> {
        object.usage().begin().then(|| Self(Arc::clone(object)))
    }

    /// Returns the object.
    pub(crate) fn arc(&self) -> &Arc<T> {
        &self.0
    }
}

impl<T: Counted> Clone for Use<T> {
    fn clone(&self) -> Self {
        // This user keeps the count above 0.
        self.0.usage().0.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(&self.0))
    }
}

impl<T: Counted> core::ops::Deref for Use<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Counted> Drop for Use<T> {
    fn drop(&mut self) {
        self.0.usage().end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct TestObject(Usage);

    impl Counted for TestObject {
        fn usage(&self) -> &Usage {
            &self.0
        }
    }

    #[test]
    fn an_object_in_use_cannot_be_closed_nor_a_closed_one_used() {
        let object = Arc::new(TestObject(Usage::default()));
        let first = Use::of(&object).expect("open");
        let second = first.clone();
        assert_eq!(object.0.count(), 2);
        assert!(!object.0.close());
        drop(first);
        assert!(!object.0.close());
        drop(second);
        assert!(object.0.close());
        assert!(!object.0.close(), "once");
        assert!(Use::of(&object).is_none());
        object.0.reopen();
        assert!(Use::of(&object).is_some());
    }
}
