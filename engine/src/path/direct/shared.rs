//! Shared receive queues: one queue of receives for many queue pairs.

use std::sync::{Arc, Weak};

use super::{CqCommandQueue, Owner};
use crate::sync::Mutex;
use mlx5_rings::layout::{LayoutError, SharedRecvLayout};
use mlx5_rings::shared::{SharedRecvConsumer, SharedRecvProducer};

/// State that the poster shares with the pollers.
pub(super) struct SharedState {
    pub(super) ring: SharedRecvConsumer,
    /// The command queue of the only completion queue that has completions so far.
    first_poller: Mutex<Option<Weak<CqCommandQueue>>>,
    /// Last field: the ring is dropped before its memory.
    _owner: Owner,
}

impl core::fmt::Debug for SharedState {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("SharedState")
            .field("ring", &self.ring)
            .finish_non_exhaustive()
    }
}

impl SharedState {
    /// Records that completions also appear in the completion queue of `commands`.
    pub(super) fn add_poller(&self, commands: &Arc<CqCommandQueue>) {
        let mut first = self.first_poller.lock();
        match &*first {
            None => *first = Some(Arc::downgrade(commands)),
            Some(known) if core::ptr::eq(known.as_ptr(), Arc::as_ptr(commands)) => {}
            Some(_) => self.ring.allow_several_pollers(),
        }
    }
}

impl SharedReceivesHandle {
    /// Returns the number of receives that were posted and not released by a
    /// completion. Exact while no thread posts or polls.
    pub fn outstanding(&self) -> u32 {
        self.0.ring.outstanding()
    }
}

/// The posting side of a shared receive queue.
#[derive(Debug)]
pub struct SharedReceives {
    pub(crate) producer: SharedRecvProducer,
    state: Arc<SharedState>,
}

/// A shared receive queue, as creating queue pairs needs it.
#[derive(Clone, Debug)]
pub struct SharedReceivesHandle(pub(super) Arc<SharedState>);

impl SharedReceives {
    /// Creates the poster of the queue at `layout`, which belongs to `owner`.
    ///
    /// # Errors
    /// The layout is inconsistent.
    ///
    /// # Safety
    /// The memory of the layout is valid as long as `owner` lives, and nothing else
    /// posts to the queue or polls its completions.
    pub unsafe fn new(layout: &SharedRecvLayout, owner: Owner) -> Result<Self, LayoutError> {
        // SAFETY: the layout's memory is valid as long as the owner lives; the state keeps the
        // owner.
        let ring = unsafe { SharedRecvConsumer::new(layout) }?;
        let state = Arc::new(SharedState {
            ring,
            first_poller: Mutex::new(None),
            _owner: owner,
        });
        // SAFETY: the consumer is in the state, which does not move and is not
        // dropped before this value, which holds both.
        let producer = unsafe { SharedRecvProducer::new(layout, &state.ring) };
        Ok(Self { producer, state })
    }

    /// Returns a handle for creating queue pairs on the queue.
    pub fn handle(&self) -> SharedReceivesHandle {
        SharedReceivesHandle(Arc::clone(&self.state))
    }
}
