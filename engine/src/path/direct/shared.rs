//! Shared receives: one queue of receives for many queue pairs.

use std::sync::{Arc, Weak};

use super::{Mailbox, Owner};
use crate::request::{ListError, PostError, RecvRequest};
use crate::sync::Mutex;
use mlx5_rings::PostReceives;
use mlx5_rings::layout::{LayoutError, SharedRecvLayout};
use mlx5_rings::shared::{SharedRecvConsumer, SharedRecvProducer};

/// What the pollers need.
pub(super) struct SharedState {
    pub(super) ring: SharedRecvConsumer,
    /// The completion queue that has all completions so far, if one has.
    first_poller: Mutex<Option<Weak<Mailbox>>>,
    /// Last: the ring goes before the memory it lies in.
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
    /// Completions will appear in the queue of `mailbox` as well.
    pub(super) fn add_poller(&self, mailbox: &Arc<Mailbox>) {
        let mut first = self.first_poller.lock();
        match &*first {
            None => *first = Some(Arc::downgrade(mailbox)),
            Some(known) if core::ptr::eq(known.as_ptr(), Arc::as_ptr(mailbox)) => {}
            Some(_) => self.ring.allow_several_pollers(),
        }
    }
}

impl SharedReceivesHandle {
    /// Receives that were posted and have not been given back by a completion.
    /// Exact when nobody posts or polls meanwhile.
    pub fn outstanding(&self) -> u32 {
        self.0.ring.outstanding()
    }
}

/// The poster's side of a shared receive queue.
#[derive(Debug)]
pub struct SharedReceives {
    producer: SharedRecvProducer,
    state: Arc<SharedState>,
}

/// What a queue pair needs to take its receives from a shared queue.
#[derive(Clone, Debug)]
pub struct SharedReceivesHandle(pub(super) Arc<SharedState>);

impl SharedReceives {
    /// The queue that lies where `layout` says and belongs to `owner`.
    ///
    /// # Errors
    /// If the layout contradicts itself.
    ///
    /// # Safety
    /// The memory of the layout is valid as long as `owner` lives, and nobody
    /// else posts to the queue or polls its completions.
    pub unsafe fn new(layout: &SharedRecvLayout, owner: Owner) -> Result<Self, LayoutError> {
        // SAFETY: passed on to the caller; the state keeps the owner.
        let ring = unsafe { SharedRecvConsumer::new(layout) }?;
        let state = Arc::new(SharedState {
            ring,
            first_poller: Mutex::new(None),
            _owner: owner,
        });
        // SAFETY: the consumer is in the state, which neither moves nor goes
        // before this value, which holds both.
        let producer = unsafe { SharedRecvProducer::new(layout, &state.ring) };
        Ok(Self { producer, state })
    }

    /// For creating queue pairs on it.
    pub fn handle(&self) -> SharedReceivesHandle {
        SharedReceivesHandle(Arc::clone(&self.state))
    }

    /// The most receives that may be outstanding.
    pub fn capacity(&self) -> u32 {
        self.producer.capacity()
    }

    /// The most segments of one receive.
    pub fn max_segments(&self) -> usize {
        self.producer.max_segments()
    }

    /// Posts one receive.
    ///
    /// # Errors
    /// [`PostError`]; nothing is posted then.
    ///
    /// # Safety
    /// The memory of the segments is writable and left alone until the receive
    /// completes.
    #[inline]
    pub unsafe fn post(&mut self, request: &RecvRequest<'_>) -> Result<(), PostError> {
        // SAFETY: passed on to the caller.
        unsafe { self.producer.post(request) }
    }

    /// [`Self::post`] as far as it goes without a call out of line. Returns
    /// whether the receive is posted.
    ///
    /// # Safety
    /// As for [`Self::post`].
    #[inline(always)]
    pub unsafe fn try_post(&mut self, request: &RecvRequest<'_>) -> bool {
        // SAFETY: passed on to the caller.
        unsafe { self.producer.try_post(request) }
    }

    /// Posts several receives with one doorbell.
    ///
    /// # Errors
    /// [`ListError`]; the receives before the bad one are posted.
    ///
    /// # Safety
    /// As for [`Self::post`], for every request.
    #[inline]
    pub unsafe fn post_list(&mut self, requests: &[RecvRequest<'_>]) -> Result<(), ListError> {
        // SAFETY: passed on to the caller.
        unsafe { self.producer.post_list(requests) }
    }
}
