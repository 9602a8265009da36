//! Posting receives to a shared queue.

use dat_engine::fast::FastPath;
use dat_engine::{ControlError, PostError, RecvRequest, SharedReceiveQueue};

use super::Srq;
use crate::object::lmr::Recent;
use crate::object::post::recv::{RecvPoster, RecvQueue, post_recv};
use crate::object::post::{LONGEST, Path, Posting, count_of, refusal, too_many};
use crate::status::DatReturn;
use crate::types::{CompletionFlags, LmrSegment};

/// The posting half of a shared queue.
pub(crate) struct Poster {
    queue: SharedReceiveQueue,
    /// 0 unless the queue is on the path that the fast path is compiled for.
    longest_fast: u64,
    /// Number of its zone: whose memory may be named.
    zone: u32,
    /// The LMR that was used last.
    recent: Recent,
}

impl Poster {
    /// The posting half of a queue whose fast path is that of `path`.
    pub(super) fn new(queue: SharedReceiveQueue, zone: u32, path: Path) -> Self {
        let longest_fast = match path.is_path_of_shared(&queue) {
            true => LONGEST,
            false => 0,
        };
        Self {
            queue,
            longest_fast,
            zone,
            recent: Recent::default(),
        }
    }
}

impl Srq {
    /// Makes room for so many receives.
    ///
    /// # Errors
    /// As [`SharedReceiveQueue::resize`].
    ///
    /// # Safety
    /// As for [`Srq::resize`].
    pub(super) unsafe fn resize_queue(&self, receives: u32) -> Result<(), ControlError> {
        // SAFETY: passed on to the caller.
        let entered = unsafe { self.posting.lock() };
        entered.poster.queue.resize(receives)
    }

    /// Posts a receive of `count` segments; `segment(i)` is the i-th, and `i`
    /// is below `count`. As a function's last act it ends in a jump.
    ///
    /// The code is that of section 3DAT, `dat_srq_post_recv`: `INVALID_PARAMETER`,
    /// `PROTECTION_VIOLATION`, `PRIVILEGES_VIOLATION`,
    /// `INSUFFICIENT_RESOURCES`.
    ///
    /// # Safety
    /// No other post and no [`Srq::resize`] runs on this queue at the same time,
    /// unless its IA is threadsafe. The memory of the segments is left alone until the receive
    /// completes, or the queue and all its endpoints are gone.
    #[inline(always)]
    pub unsafe fn post_recv_with(
        &self,
        count: u32,
        segment: impl Fn(usize) -> LmrSegment,
        cookie: u64,
    ) -> DatReturn {
        // SAFETY: passed on to the caller.
        unsafe { post_recv(self, count, segment, cookie, CompletionFlags::empty()) }
    }

    /// [`Self::post_recv_with`] of an array.
    ///
    /// # Errors
    /// As for [`Self::post_recv_with`].
    ///
    /// # Safety
    /// As for [`Self::post_recv_with`].
    #[inline]
    pub unsafe fn post_recv(&self, segments: &[LmrSegment], cookie: u64) -> Result<(), DatReturn> {
        // SAFETY: passed on to the caller.
        unsafe { self.post_recv_with(count_of(segments), |at| segments[at], cookie) }.into_result()
    }
}

impl RecvQueue for Srq {
    type Poster = Poster;

    #[inline(always)]
    fn posting(&self) -> &Posting<Poster> {
        &self.posting
    }

    #[inline(always)]
    fn admit(&self, _: &Poster, count: u32, _: CompletionFlags) -> Result<(), DatReturn> {
        if count > self.max_iov {
            return Err(too_many());
        }
        Ok(())
    }

    /// What is outstanding is counted by the engine.
    #[inline(always)]
    fn count_posted(&self) {}

    #[cold]
    unsafe fn make_room(&self, error: PostError) -> bool {
        if error == PostError::QueueFull {
            self.look_for_room();
            return true;
        }
        false
    }

    #[cold]
    fn refuse(&self, error: PostError) -> DatReturn {
        self.refused.note(error);
        refusal(error)
    }
}

impl RecvPoster for Poster {
    #[inline(always)]
    fn longest_fast(&self) -> u64 {
        // SAFETY: `new` has set it to this or 0. Then the ring need not ask whether
        // a length fits.
        unsafe { core::hint::assert_unchecked(self.longest_fast <= LONGEST) };
        self.longest_fast
    }

    #[inline(always)]
    fn zone(&self) -> u32 {
        self.zone
    }

    #[inline(always)]
    fn recent(&mut self) -> &mut Recent {
        &mut self.recent
    }

    #[inline(always)]
    unsafe fn try_post<P: FastPath>(&mut self, request: &RecvRequest<'_>) -> bool {
        // SAFETY: passed on to the caller: the limit is not 0, and only one path
        // has limits.
        unsafe { P::try_post_shared(&mut self.queue, request) }
    }

    #[inline(always)]
    unsafe fn post(&mut self, request: &RecvRequest<'_>) -> Result<(), PostError> {
        // SAFETY: passed on to the caller.
        unsafe { self.queue.post(request) }
    }
}
