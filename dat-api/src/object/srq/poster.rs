//! Posting receives to a shared queue.

use dat_engine::{ControlError, Message, PostError, RecvRequest, SharedReceiveQueue};

use super::Srq;
use crate::handle::Handle;
use crate::object::counters::Refused;
use crate::object::lmr::LmrCache;
use crate::object::post::list::{ListError, Listed};
use crate::object::post::recv::{RecvPoster, RecvQueue, post_fast, post_recv_list, post_slow};
use crate::object::post::{Longest, Posting, count_of};
use crate::refusal::Refusal;
use crate::status::{DatReturn, OwnCodes, ReturnCodes};
use crate::types::{CompletionFlags, LmrSegment};

/// The posting half of a shared queue.
pub(crate) struct Poster {
    queue: SharedReceiveQueue,
    /// The longest segment of the fast path on the direct path.
    longest_direct: Longest,
    /// The handle of the zone that segments must be in.
    zone: usize,
    /// The LMR cache.
    lmr_cache: LmrCache,
}

impl Poster {
    /// Returns the posting half of a queue.
    pub(super) fn new(queue: SharedReceiveQueue, zone: usize) -> Self {
        let longest_direct = match queue.is_direct() {
            true => Longest::ANY,
            false => Longest::NONE,
        };
        Self {
            queue,
            longest_direct,
            zone,
            lmr_cache: LmrCache::default(),
        }
    }
}

impl Srq {
    /// Makes room for this many receives.
    ///
    /// # Errors
    /// As [`SharedReceiveQueue::resize`].
    ///
    /// # Safety
    /// As for [`Srq::resize`].
    pub(super) unsafe fn resize_queue(&self, receives: u32) -> Result<(), ControlError> {
        // SAFETY: no post runs at the same time, unless posts take the lock.
        let entered = unsafe { self.posting.lock() };
        entered.poster.queue.resize(receives)
    }

    /// Posts a receive of `count` segments; `segment(i)` is the i-th, and `i` is below `count`. As
    /// the last statement of a function, the call compiles to a jump.
    ///
    /// Returns the code of section 3DAT, `dat_srq_post_recv`: `INVALID_PARAMETER`,
    /// `PROTECTION_VIOLATION`, `PRIVILEGES_VIOLATION`, `INSUFFICIENT_RESOURCES`.
    ///
    /// # Safety
    /// No other post and no [`Srq::resize`] runs on this queue at the same time, unless its IA is
    /// threadsafe or [`Srq::create_locked`] has created it. The memory of the segments is left alone until the receive completes, or the
    /// queue and all its endpoints are gone.
    #[inline(always)]
    pub unsafe fn post_recv_with<C: ReturnCodes>(
        &self,
        count: u32,
        segment: impl Fn(usize) -> LmrSegment,
        cookie: u64,
    ) -> DatReturn {
        // SAFETY: posts take turns, and the segments' memory stays until they complete.
        unsafe {
            match count {
                1 => post_fast::<false, C, _>(self, segment, cookie),
                _ => post_slow::<C, _>(self, segment, cookie, count, CompletionFlags::empty()),
            }
        }
    }

    /// Posts a list of receives; `listed` returns what one of them consists of.
    ///
    /// # Errors
    /// A receive was refused, with the code of [`Self::post_recv_with`].
    ///
    /// # Safety
    /// As for [`Self::post_recv_with`], for every receive.
    #[inline(always)]
    pub(crate) unsafe fn post_recv_list<T>(
        &self,
        receives: &[T],
        listed: impl Fn(&T) -> Listed,
    ) -> Result<(), ListError> {
        // SAFETY: posts take turns, and the segments' memory stays until they complete.
        unsafe { post_recv_list(self, receives, listed) }
    }

    /// As [`Self::post_recv_with`], for an array.
    ///
    /// # Errors
    /// As for [`Self::post_recv_with`].
    ///
    /// # Safety
    /// As for [`Self::post_recv_with`].
    #[inline]
    pub unsafe fn post_recv(&self, segments: &[LmrSegment], cookie: u64) -> Result<(), DatReturn> {
        // SAFETY: posts take turns, and the segments' memory stays until they complete.
        unsafe { self.post_recv_with::<OwnCodes>(count_of(segments), |at| segments[at], cookie) }
            .into_result()
    }
}

impl RecvQueue for Srq {
    type Poster = Poster;
    const CALL: &'static str = "dat_srq_post_recv";

    fn handle(&self) -> Handle {
        self.handle
    }

    fn refused(&self) -> &Refused {
        &self.refused
    }

    #[inline(always)]
    fn posting(&self) -> &Posting<Poster> {
        &self.posting
    }

    #[inline(always)]
    fn check_post(&self, _: &Poster, count: u32, _: CompletionFlags) -> Result<(), Refusal> {
        if count > self.max_iov {
            return Err(Refusal::TooManySegments {
                count,
                most: self.max_iov,
                attribute: "max_recv_iov",
                owner: "shared receive queue",
            });
        }
        Ok(())
    }

    /// Does nothing: the engine counts outstanding receives.
    #[inline(always)]
    fn count_posted(&self, _: &Poster) {}

    #[cold]
    unsafe fn make_room(&self, error: PostError) -> bool {
        if error == PostError::QueueFull {
            self.poll_for_room();
            return true;
        }
        false
    }

    #[cold]
    fn refusal(&self, _: &Poster, error: PostError) -> Refusal {
        match error {
            PostError::QueueFull => Refusal::SharedFull {
                depth: self.capacity(),
            },
            error => Refusal::Engine { error },
        }
    }
}

impl RecvPoster for Poster {
    #[inline(always)]
    fn longest(&self) -> Longest {
        Longest::ANY
    }

    #[inline(always)]
    fn longest_direct(&self) -> Longest {
        self.longest_direct
    }

    #[inline(always)]
    fn zone(&self) -> usize {
        self.zone
    }

    #[inline(always)]
    fn lmr_cache(&mut self) -> &mut LmrCache {
        &mut self.lmr_cache
    }

    #[inline(always)]
    unsafe fn try_post<const BY_VERBS: bool>(&mut self, request: &RecvRequest<'_>) -> bool {
        // SAFETY: posts take turns, and the segments' memory stays until they complete.
        unsafe {
            match BY_VERBS {
                false => self.queue.try_post(request),
                true => self.queue.post(request).is_ok(),
            }
        }
    }

    #[inline(always)]
    unsafe fn try_post_list<T>(
        &mut self,
        list: &[T],
        message: impl Fn(&T) -> Option<Message> + Copy,
    ) -> usize {
        // SAFETY: posts take turns, and the segments' memory stays until they complete.
        unsafe { self.queue.try_post_list(list, message) }
    }

    #[inline(always)]
    unsafe fn post(&mut self, request: &RecvRequest<'_>) -> Result<(), PostError> {
        // SAFETY: the segments' memory stays until the requests complete.
        unsafe { self.queue.post(request) }
    }
}
