//! What an IA holds: the list that closing it goes by.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::{DatError, Result};
use crate::handle::{Handle, Kind, Object, Reservation};
use crate::status::{ReturnType, Subtype};

/// The objects made of an IA.
#[derive(Default)]
pub(super) struct Children(Mutex<State>);

#[derive(Default)]
struct State {
    /// Nothing is made of the IA any more.
    closed: bool,
    live: HashMap<Handle, Child>,
}

/// One object.
#[derive(Clone, Copy)]
pub(super) struct Child {
    pub(super) kind: Kind,
    /// Whether the consumer made it.
    consumers: bool,
    pub(super) abort: fn(Handle),
}

impl Children {
    /// Publishes an object that the consumer made.
    pub(super) fn publish<T: Object>(
        &self,
        place: Reservation,
        object: &Arc<T>,
        abort: fn(Handle),
    ) -> Result<Handle> {
        self.enter(place, object, abort, true)
    }

    /// Publishes an object that the provider made.
    pub(super) fn publish_own<T: Object>(
        &self,
        place: Reservation,
        object: &Arc<T>,
        abort: fn(Handle),
    ) -> Result<Handle> {
        self.enter(place, object, abort, false)
    }

    fn enter<T: Object>(
        &self,
        place: Reservation,
        object: &Arc<T>,
        abort: fn(Handle),
        consumers: bool,
    ) -> Result<Handle> {
        let mut state = self.lock();
        if state.closed {
            return Err(DatError::new(
                ReturnType::InvalidHandle,
                Subtype::InvalidHandleIa,
                "the IA is being closed",
            ));
        }
        // Under the lock: whoever closes the IA finds it listed and live, or
        // it is not made at all.
        let handle = place.publish(Arc::clone(object));
        let child = Child {
            kind: T::KIND,
            consumers,
            abort,
        };
        state.live.insert(handle, child);
        Ok(handle)
    }

    /// Takes an object off the list.
    pub(super) fn remove(&self, handle: Handle) {
        self.lock().live.remove(&handle);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics under the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
