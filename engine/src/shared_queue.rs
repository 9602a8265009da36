//! Shared receive queues, as the application sees them.

use core::fmt;
use core::ops::Deref;
use std::sync::Arc;

use crate::control::{ProtectionDomain, VerbsSrq};
use crate::error::{ControlError, ControlErrorKind};
use crate::path::{self, direct, verbs};
use crate::request::{ListError, PostError, RecvRequest};
use mlx5_rings::layout::SharedRecvLayout;

/// How to create a [`SharedReceiveQueue`].
#[derive(Clone, Copy, Debug)]
pub struct SrqOptions {
    /// Receives that may be outstanding, at least. Where it can grow later
    /// [`SharedReceiveQueue::resize`] tells.
    pub depth: u32,
    /// Segments of one receive, at most.
    pub max_segments: u32,
}

/// A queue of receives for many endpoints, and the right to post to it.
///
/// What may be done while another thread posts takes a
/// [`SharedReceiveQueueHandle`], to which this dereferences.
pub struct SharedReceiveQueue {
    path: path::SharedReceives,
    handle: SharedReceiveQueueHandle,
}

/// A shared receive queue without the right to post to it. Clones are handles
/// to the same queue.
#[derive(Clone)]
pub struct SharedReceiveQueueHandle {
    pub(crate) verbs: VerbsSrq,
    pub(crate) path: path::SrqSide,
}

impl ProtectionDomain {
    /// Creates a shared receive queue.
    ///
    /// # Errors
    /// A depth or a number of segments of 0 or beyond the device's limits, or
    /// no memory for it.
    pub fn create_srq(&self, options: &SrqOptions) -> Result<SharedReceiveQueue, ControlError> {
        let verbs = VerbsSrq::create(self, options.depth, options.max_segments)?;
        let path = match verbs.layout() {
            Some(layout) => {
                let owner = Arc::new(verbs.clone());
                // SAFETY: the layout is that of a queue that was just created,
                // which lives as long as the owner, and is used by nobody else.
                let receives = unsafe { direct::SharedReceives::new(&layout, owner) };
                path::SharedReceives::Direct(receives.map_err(|error| {
                    ControlError::new(
                        ControlErrorKind::Unsupported,
                        "drive a shared receive queue directly",
                        error.to_string(),
                    )
                })?)
            }
            None => path::SharedReceives::Verbs(verbs::SharedReceives::new(
                verbs.clone(),
                verbs.capacity(),
                verbs.max_segments(),
            )),
        };
        let handle = SharedReceiveQueueHandle {
            verbs,
            path: path.side(),
        };
        Ok(SharedReceiveQueue { path, handle })
    }
}

impl SharedReceiveQueue {
    /// Posts one receive.
    ///
    /// # Errors
    /// [`PostError`]; nothing is posted then.
    ///
    /// # Safety
    /// The memory of the segments is writable and left alone until the receive
    /// completes, or the queue and all its endpoints are gone.
    #[inline]
    pub unsafe fn post(&mut self, request: &RecvRequest<'_>) -> Result<(), PostError> {
        // SAFETY: passed on to the caller.
        unsafe { self.path.post(request) }
    }

    #[inline(always)]
    pub(crate) fn path(&self) -> &path::SharedReceives {
        &self.path
    }

    #[inline(always)]
    pub(crate) fn path_mut(&mut self) -> &mut path::SharedReceives {
        &mut self.path
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
        unsafe { self.path.post_list(requests) }
    }

    /// Makes room for `depth` receives, if there is less: what is outstanding
    /// stays. Never makes it less.
    ///
    /// # Errors
    /// The device cannot resize (mlx5), or not so far. Then nothing has changed.
    pub fn resize(&mut self, depth: u32) -> Result<(), ControlError> {
        if depth <= self.capacity() {
            return Ok(());
        }
        // Refused on the direct path: there the device is mlx5, which cannot.
        self.handle.verbs.resize(depth)?;
        match &mut self.path {
            path::SharedReceives::Verbs(receives) => receives.grow(depth),
            path::SharedReceives::Direct(_) => {}
        }
        Ok(())
    }

    /// What creating endpoints takes; for use while another thread posts.
    #[must_use]
    pub fn handle(&self) -> &SharedReceiveQueueHandle {
        &self.handle
    }

    /// How many receives may be outstanding.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.path.capacity()
    }

    /// How many segments one receive may have.
    #[must_use]
    pub fn max_segments(&self) -> usize {
        self.path.max_segments()
    }
}

impl Deref for SharedReceiveQueue {
    type Target = SharedReceiveQueueHandle;

    fn deref(&self) -> &SharedReceiveQueueHandle {
        &self.handle
    }
}

impl SharedReceiveQueueHandle {
    /// Its number on the device.
    #[must_use]
    pub fn srqn(&self) -> u32 {
        self.verbs.srqn()
    }

    /// Asks for one asynchronous event when fewer than `limit` receives are
    /// left; 0 asks for none.
    ///
    /// # Errors
    /// A limit above the depth.
    pub fn set_limit(&self, limit: u32) -> Result<(), ControlError> {
        self.verbs.set_limit(limit)
    }

    /// Receives that were posted and whose completions were not polled yet. For
    /// any thread; exact when nobody posts or polls meanwhile.
    #[must_use]
    pub fn outstanding(&self) -> u32 {
        self.path.outstanding()
    }

    /// The verbs object, for matching asynchronous events.
    #[must_use]
    pub fn verbs(&self) -> &VerbsSrq {
        &self.verbs
    }

    /// Where its ring lies: for tests and measurements that play the device.
    /// `None` on the verbs path.
    #[must_use]
    pub fn layout(&self) -> Option<SharedRecvLayout> {
        self.verbs.layout()
    }
}

impl fmt::Debug for SharedReceiveQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedReceiveQueue")
            .field("srqn", &self.srqn())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for SharedReceiveQueueHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedReceiveQueueHandle")
            .field("srqn", &self.srqn())
            .finish_non_exhaustive()
    }
}
