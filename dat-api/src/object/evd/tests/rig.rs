//! An EVD whose surroundings are the test.

use std::sync::{Arc, Mutex, PoisonError};

use super::fake::{FakeQueue, Ring};
use crate::handle::Handle;
use crate::types::{AsyncKind, AsyncReason};

/// What the EVD has instead of an IA.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct World(Arc<Inside>);

#[derive(Debug, Default)]
struct Inside {
    reports: Mutex<Vec<(AsyncKind, Handle, AsyncReason)>>,
    rings: Mutex<Vec<Arc<Ring>>>,
}

impl World {
    pub(in super::super) fn report(&self, kind: AsyncKind, handle: Handle, reason: AsyncReason) {
        let mut reports = self
            .0
            .reports
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        reports.push((kind, handle, reason));
    }

    /// Asynchronous events that were reported.
    pub(super) fn reports(&self) -> Vec<(AsyncKind, Handle, AsyncReason)> {
        let reports = self
            .0
            .reports
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        reports.clone()
    }

    pub(in super::super) fn make_queue(&self, depth: u32) -> FakeQueue {
        let (queue, ring) = FakeQueue::new(depth);
        let mut rings = self.0.rings.lock().unwrap_or_else(PoisonError::into_inner);
        rings.push(ring);
        queue
    }

    /// The completion queues that were made, in order.
    pub(super) fn rings(&self) -> Vec<Arc<Ring>> {
        let rings = self.0.rings.lock().unwrap_or_else(PoisonError::into_inner);
        rings.clone()
    }
}
