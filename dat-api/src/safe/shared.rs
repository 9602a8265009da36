//! Shared receive queues.

use std::sync::Arc;

use super::memory::{Kept, posted};
use super::{ProtectionZone, Segment};
use crate::error::Result;
use crate::handle::Handle;
use crate::object::srq::{Srq, SrqInfo};
use crate::status::DatReturn;
use crate::types::SrqAttributes;
use dat_engine::sync::{Mutex, SpinLock};

/// Receives for many endpoints. Clones are the same queue; posting takes a
/// lock that only other posts, and resizing, hold.
#[derive(Clone, Debug)]
pub struct SharedReceiveQueue(Arc<Queue>);

#[derive(Debug)]
struct Queue {
    srq: Arc<Srq>,
    /// What is kept for posts. Held by a post, and while the queue is resized.
    posts: SpinLock<Kept>,
    /// One change of the queue at a time.
    changes: Mutex<()>,
    // After the queue is freed.
    _zone: ProtectionZone,
}

impl Drop for Queue {
    fn drop(&mut self) {
        // Endpoints on it own it: only a closed adapter makes this fail.
        let _ = Srq::free(self.srq.handle());
    }
}

impl ProtectionZone {
    /// Makes a queue of so many receives of so many segments.
    ///
    /// # Errors
    /// 0, or beyond the adapter's limits; a device that has no more.
    pub fn shared_receive_queue(&self, receives: u32, segments: u32) -> Result<SharedReceiveQueue> {
        let count = |value| i32::try_from(value).unwrap_or(i32::MAX);
        let attributes = SrqAttributes {
            max_recv_dtos: count(receives),
            max_recv_iov: count(segments),
            low_watermark: 0,
        };
        Ok(SharedReceiveQueue(Arc::new(Queue {
            srq: Srq::create(self.adapter().ia(), self.pz(), &attributes)?,
            posts: SpinLock::default(),
            changes: Mutex::default(),
            _zone: self.clone(),
        })))
    }
}

impl SharedReceiveQueue {
    /// Its name among DAT objects.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.0.srq.handle()
    }

    /// Makes room for at least so many receives; nothing is lost.
    ///
    /// # Errors
    /// As [`Srq::resize`].
    pub fn resize(&self, receives: u32) -> Result<()> {
        let _one_at_a_time = self.0.changes.lock();
        let _no_posts = self.0.posts.lock();
        let receives = i32::try_from(receives).unwrap_or(i32::MAX);
        // SAFETY: posts wait for their lock, other calls of this for the other.
        unsafe { self.0.srq.resize(receives) }
    }

    /// Everything that can be asked of it.
    #[must_use]
    pub fn query(&self) -> SrqInfo {
        self.0.srq.query()
    }

    /// Posts to it that were refused because it was full.
    #[must_use]
    pub fn refused_posts(&self) -> u64 {
        self.0.srq.refused_posts()
    }

    /// Asks for one asynchronous event when fewer than so many receives are
    /// left; at once if that is so already.
    ///
    /// # Errors
    /// More than the queue holds.
    pub fn set_low_watermark(&self, receives: u32) -> Result<()> {
        let _one_at_a_time = self.0.changes.lock();
        self.0
            .srq
            .set_low_watermark(i32::try_from(receives).unwrap_or(i32::MAX))
    }

    /// Posts a receive. Its completion is reported where the endpoint that
    /// takes it reports receives.
    ///
    /// # Errors
    /// The code names the reason; nothing is posted then.
    #[inline]
    pub fn post_recv(&self, segments: &[Segment<'_>], cookie: u64) -> Result<(), DatReturn> {
        let mut kept = self.0.posts.lock();
        kept.keep(segments);
        // SAFETY: the lock serialises; the mappings are kept until the queue
        // is gone, which its endpoints outlive not.
        unsafe {
            let (count, segment) = posted(segments);
            self.0.srq.post_recv_with(count, segment, cookie)
        }
        .into_result()
    }

    pub(super) fn srq(&self) -> Arc<Srq> {
        Arc::clone(&self.0.srq)
    }
}
