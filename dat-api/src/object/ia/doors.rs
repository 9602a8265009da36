//! The service points of an IA by what they listen on: where a request that is
//! handed off finds another. `object/door.rs` has their type.

use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

use dat_engine::sync::Mutex;

/// By qualifier. Doors are found until they are gone; whether one is still
/// open it knows itself.
#[derive(Default)]
pub(crate) struct Doors(Mutex<HashMap<u64, Weak<dyn Any + Send + Sync>>>);

impl Doors {
    /// A door listens for a qualifier, which no other does.
    pub(crate) fn enter<T: Any + Send + Sync>(&self, qualifier: u64, door: &Arc<T>) {
        let door = Arc::downgrade(door);
        let mut doors = self.0.lock();
        doors.retain(|_, door| door.strong_count() > 0);
        doors.insert(qualifier, door);
    }

    /// Who listens for a qualifier.
    pub(crate) fn find(&self, qualifier: u64) -> Option<Arc<dyn Any + Send + Sync>> {
        self.0.lock().get(&qualifier).and_then(Weak::upgrade)
    }
}
