//! Shared receive queues.

use std::sync::Arc;

use super::memory::{Message, SharedMappings, posted};
use super::{ProtectionZone, Segment};
use crate::error::Result;
use crate::handle::Handle;
use crate::object::ListError;
use crate::object::srq::{Srq, SrqInfo};
use crate::refusal::{Refusal, checked};
use crate::status::OwnCodes;
use crate::types::SrqAttributes;
use dat_engine::sync::Mutex;

/// A queue of receives for many endpoints. Clones are the same queue; posting takes a lock that
/// only other posts, and resizing, hold.
#[derive(Clone, Debug)]
pub struct SharedReceiveQueue(Arc<Queue>);

#[derive(Debug)]
struct Queue {
    srq: Arc<Srq>,
    /// The mappings of posted receives.
    kept: SharedMappings,
    /// Locked by a call that changes the queue.
    changes: Mutex<()>,
    // Dropped after the queue is freed.
    _zone: ProtectionZone,
}

impl Drop for Queue {
    fn drop(&mut self) {
        // Its endpoints own it, so this fails only if the adapter was closed.
        let _ = Srq::free(self.srq.handle());
    }
}

impl ProtectionZone {
    /// Creates a queue of `receives` receives with up to `segments` segments.
    ///
    /// # Errors
    /// 0, or beyond the adapter's limits; a device that has no more.
    pub fn create_shared_receive_queue(
        &self,
        receives: u32,
        segments: u32,
    ) -> Result<SharedReceiveQueue> {
        let count = |value| i32::try_from(value).unwrap_or(i32::MAX);
        let attributes = SrqAttributes {
            max_recv_dtos: count(receives),
            max_recv_iov: count(segments),
            low_watermark: 0,
        };
        Ok(SharedReceiveQueue(Arc::new(Queue {
            srq: Srq::create_locked(self.adapter().ia(), self.pz(), &attributes)?,
            kept: SharedMappings::default(),
            changes: Mutex::default(),
            _zone: self.clone(),
        })))
    }
}

impl SharedReceiveQueue {
    /// Returns its DAT handle.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.0.srq.handle()
    }

    /// Makes room for at least this many receives; no receive is lost.
    ///
    /// # Errors
    /// As [`Srq::resize`].
    pub fn resize(&self, receives: u32) -> Result<()> {
        let _one_at_a_time = self.0.changes.lock();
        let receives = i32::try_from(receives).unwrap_or(i32::MAX);
        // SAFETY: `create_locked` has created the queue; other calls of this wait for the lock.
        unsafe { self.0.srq.resize(receives) }
    }

    /// Returns its parameters and state.
    #[must_use]
    pub fn query(&self) -> SrqInfo {
        self.0.srq.query()
    }

    /// Returns the number of its posts that were refused because it was full.
    #[must_use]
    pub fn refused_posts(&self) -> u64 {
        self.0.srq.refused_posts()
    }

    /// Requests one asynchronous event when fewer than `receives` receives are left, at once if
    /// that is already so.
    ///
    /// # Errors
    /// More than the queue holds.
    pub fn set_low_watermark(&self, receives: u32) -> Result<()> {
        let _one_at_a_time = self.0.changes.lock();
        self.0
            .srq
            .set_low_watermark(i32::try_from(receives).unwrap_or(i32::MAX))
    }

    /// Posts a receive. Its completion goes to the dispatcher of the endpoint that takes it.
    ///
    /// # Errors
    /// Nothing is posted then.
    #[inline]
    pub fn post_recv(&self, segments: &[Segment<'_>], cookie: u64) -> Result<(), Refusal> {
        self.0.kept.keep(segments);
        // SAFETY: `create_locked` has created the queue; the mappings are kept until the queue is
        // freed, and its endpoints do not outlive it.
        checked(unsafe {
            let (count, segment) = posted(segments);
            self.0
                .srq
                .post_recv_with::<OwnCodes>(count, segment, cookie)
        })
    }

    /// Posts several receives as [`super::Endpoint::post_recv_list`] does.
    ///
    /// # Errors
    /// [`ListError`]; the receives before the refused one are posted.
    #[inline]
    pub fn post_recv_list(&self, receives: &[Message<'_>]) -> Result<(), ListError> {
        for receive in receives {
            self.0.kept.keep(core::slice::from_ref(&receive.segment));
        }
        // SAFETY: as in `post_recv`.
        unsafe { self.0.srq.post_recv_list(receives, Message::listed) }
    }

    pub(super) fn srq(&self) -> Arc<Srq> {
        Arc::clone(&self.0.srq)
    }
}
