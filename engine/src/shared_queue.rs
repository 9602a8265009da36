//! Shared receive queues.

use core::fmt;
use core::ops::Deref;
use std::sync::Arc;

use crate::control::{ProtectionDomain, VerbsSrq};
use crate::error::{ControlError, ControlErrorKind};
use crate::path::{self, direct, verbs};
use crate::request::{ListError, Message, PostError, RecvRequest};
use mlx5_rings::PostReceives;
use mlx5_rings::layout::SharedRecvLayout;

/// How to create a [`SharedReceiveQueue`].
#[derive(Clone, Copy, Debug)]
pub struct SrqOptions {
    /// The least number of receives that may be outstanding.
    /// [`SharedReceiveQueue::resize`] describes where it can grow later.
    pub depth: u32,
    /// The most segments of one receive.
    pub max_segments: u32,
}

/// A queue of receives for many endpoints, and the right to post to it.
///
/// Operations that are allowed while another thread posts take a
/// [`SharedReceiveQueueHandle`], to which this type dereferences.
pub struct SharedReceiveQueue {
    path: path::SharedReceives,
    handle: SharedReceiveQueueHandle,
}

/// A shared receive queue without the right to post to it. Clones are handles to
/// the same queue.
#[derive(Clone)]
pub struct SharedReceiveQueueHandle {
    pub(crate) verbs: VerbsSrq,
    pub(crate) path: path::SrqSide,
}

impl ProtectionDomain {
    /// Creates a shared receive queue.
    ///
    /// # Errors
    /// The depth or the number of segments is 0 or exceeds the device's limits, or
    /// there is no memory.
    pub fn create_srq(&self, options: &SrqOptions) -> Result<SharedReceiveQueue, ControlError> {
        let verbs = VerbsSrq::create(self, options.depth, options.max_segments)?;
        let path = match verbs.layout() {
            Some(layout) => {
                let owner = Arc::new(verbs.clone());
                // SAFETY: the layout is that of a queue that was just created,
                // which lives as long as the owner and has no other user.
                let receives = unsafe { direct::SharedReceives::new(&layout, owner) };
                path::SharedReceives::Direct(receives.map_err(|error| {
                    ControlError::new(
                        ControlErrorKind::Unsupported,
                        "use a shared receive queue on the direct path",
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
    /// The memory of the segments is writable, and not used otherwise until the
    /// receive completes, or until the queue and all its endpoints were dropped.
    #[inline(always)]
    pub unsafe fn post(&mut self, request: &RecvRequest<'_>) -> Result<(), PostError> {
        // SAFETY: the segments' memory stays until the requests complete.
        unsafe {
            match &mut self.path {
                path::SharedReceives::Direct(path) => path.producer.post(request)?,
                path::SharedReceives::Verbs(path) => path.post(&request.reborrow())?,
            }
        }
        Ok(())
    }

    /// Returns whether the queue is on the direct path, as all queues of its device are.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        matches!(self.path, path::SharedReceives::Direct(_))
    }

    /// Posts as [`Self::post`] does if there is room and the request has one segment. Returns
    /// whether the receive is posted. Makes no outlined call.
    ///
    /// # Safety
    /// As for [`Self::post`]; and the queue is on the direct path.
    #[inline(always)]
    pub unsafe fn try_post(&mut self, request: &RecvRequest<'_>) -> bool {
        match &mut self.path {
            // SAFETY: the caller has found that the path is direct.
            path::SharedReceives::Direct(path) => unsafe { path.producer.try_post(request) },
            // SAFETY: the caller has found that the path is direct.
            path::SharedReceives::Verbs(_) => unsafe { core::hint::unreachable_unchecked() },
        }
    }

    /// Posts receives of a list as [`crate::Endpoint::try_post_recvs`] does.
    ///
    /// # Safety
    /// As for [`Self::post`], for every message.
    #[inline(always)]
    pub unsafe fn try_post_list<T>(
        &mut self,
        list: &[T],
        message: impl Fn(&T) -> Option<Message> + Copy,
    ) -> usize {
        // SAFETY: the segments' memory stays until the requests complete.
        unsafe {
            match &mut self.path {
                path::SharedReceives::Direct(path) => {
                    path.producer.try_post_messages(list, message)
                }
                path::SharedReceives::Verbs(path) => on_verbs(path, list, message),
            }
        }
    }

    /// Posts several receives with one doorbell.
    ///
    /// # Errors
    /// [`ListError`]; the receives before the invalid one are posted.
    ///
    /// # Safety
    /// As for [`Self::post`], for every request.
    #[inline]
    pub unsafe fn post_list(&mut self, requests: &[RecvRequest<'_>]) -> Result<(), ListError> {
        // SAFETY: the segments' memory stays until the requests complete.
        unsafe {
            match &mut self.path {
                path::SharedReceives::Direct(path) => path.producer.post_list(requests),
                path::SharedReceives::Verbs(path) => path.post_list(requests),
            }
        }
    }

    /// Grows the queue to at least `depth` receives. Outstanding receives stay.
    /// Never shrinks the queue.
    ///
    /// # Errors
    /// The device cannot resize its queues (mlx5), or `depth` exceeds its limit.
    /// The queue is then unchanged.
    pub fn resize(&mut self, depth: u32) -> Result<(), ControlError> {
        if depth <= self.capacity() {
            return Ok(());
        }
        // Fails on the direct path, since mlx5 devices do not resize shared receive
        // queues.
        self.handle.verbs.resize(depth)?;
        match &mut self.path {
            path::SharedReceives::Verbs(receives) => receives.grow(depth),
            path::SharedReceives::Direct(_) => {}
        }
        Ok(())
    }

    /// Returns the handle for creating endpoints, for use while another thread
    /// posts.
    #[must_use]
    pub fn handle(&self) -> &SharedReceiveQueueHandle {
        &self.handle
    }

    /// Returns how many receives may be outstanding.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        match &self.path {
            path::SharedReceives::Direct(path) => path.producer.capacity(),
            path::SharedReceives::Verbs(path) => path.capacity(),
        }
    }

    /// Returns the most segments of one receive.
    #[must_use]
    pub fn max_segments(&self) -> usize {
        match &self.path {
            path::SharedReceives::Direct(path) => path.producer.max_segments(),
            path::SharedReceives::Verbs(path) => path.max_segments(),
        }
    }
}

impl Deref for SharedReceiveQueue {
    type Target = SharedReceiveQueueHandle;

    fn deref(&self) -> &SharedReceiveQueueHandle {
        &self.handle
    }
}

impl SharedReceiveQueueHandle {
    /// Returns the queue's number (SRQN).
    #[must_use]
    pub fn srqn(&self) -> u32 {
        self.verbs.srqn()
    }

    /// Arms the queue's limit: one asynchronous event is raised when fewer than
    /// `limit` receives are left. 0 disarms.
    ///
    /// # Errors
    /// The limit exceeds the depth.
    pub fn set_limit(&self, limit: u32) -> Result<(), ControlError> {
        self.verbs.set_limit(limit)
    }

    /// Returns the number of receives that were posted and whose completions were
    /// not polled yet. May be called from any thread; exact while no thread posts
    /// or polls.
    #[must_use]
    pub fn outstanding(&self) -> u32 {
        self.path.outstanding()
    }

    /// Returns the libibverbs shared receive queue, for matching asynchronous
    /// events.
    #[must_use]
    pub fn verbs(&self) -> &VerbsSrq {
        &self.verbs
    }

    /// Returns the location of the ring, for tests and benchmarks that simulate the
    /// device. `None` on the verbs path.
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

/// [`SharedReceiveQueue::try_post_list`] on the verbs path. Out of line, so that the loop of the
/// direct path keeps its registers.
///
/// # Safety
/// As for [`SharedReceiveQueue::post`], for every message.
#[cold]
#[inline(never)]
unsafe fn on_verbs<T>(
    path: &mut verbs::SharedReceives,
    list: &[T],
    message: impl Fn(&T) -> Option<Message>,
) -> usize {
    // SAFETY: the segments' memory stays until the requests complete.
    unsafe { path.try_post_messages(list, message) }
}
