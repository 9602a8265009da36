//! The service points of an IA by qualifier, for requests that are handed off. `object/door.rs` has
//! their type.

use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

use dat_engine::sync::Mutex;

/// By qualifier. A service point is found until it is dropped; it records itself whether it is
/// still open.
#[derive(Default)]
pub(crate) struct Doors(Mutex<HashMap<u64, Weak<dyn Any + Send + Sync>>>);

impl Doors {
    /// Adds a service point that listens on a qualifier, on which no other listens.
    pub(crate) fn enter<T: Any + Send + Sync>(&self, qualifier: u64, door: &Arc<T>) {
        let door = Arc::downgrade(door);
        let mut doors = self.0.lock();
        doors.retain(|_, door| door.strong_count() > 0);
        doors.insert(qualifier, door);
    }

    /// Returns the service point that listens on a qualifier.
    pub(crate) fn find(&self, qualifier: u64) -> Option<Arc<dyn Any + Send + Sync>> {
        self.0.lock().get(&qualifier).and_then(Weak::upgrade)
    }
}
