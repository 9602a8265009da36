//! The service points of an IA by qualifier, for requests that are handed off.
//! `object/service_point.rs` has their type.

use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

use dat_engine::sync::Mutex;

/// By qualifier. A service point is found until it is dropped; it records itself whether it is
/// still open.
#[derive(Default)]
pub(crate) struct ServicePoints(Mutex<HashMap<u64, Weak<dyn Any + Send + Sync>>>);

impl ServicePoints {
    /// Adds a service point that listens on a qualifier, on which no other listens.
    pub(crate) fn insert<T: Any + Send + Sync>(&self, qualifier: u64, point: &Arc<T>) {
        let point = Arc::downgrade(point);
        let mut service_points = self.0.lock();
        service_points.retain(|_, point| point.strong_count() > 0);
        service_points.insert(qualifier, point);
    }

    /// Returns the service point that listens on a qualifier.
    pub(crate) fn find(&self, qualifier: u64) -> Option<Arc<dyn Any + Send + Sync>> {
        self.0.lock().get(&qualifier).and_then(Weak::upgrade)
    }
}
