//! Posting receives to an endpoint's own queue.

use dat_engine::{Message, PostError, RecvRequest};

use super::Ep;
use super::poster::Poster;
use crate::handle::Handle;
use crate::object::counters::Refused;
use crate::object::lmr::LmrCache;
use crate::object::post::list::{ListError, Listed};
use crate::object::post::recv::{RecvPoster, RecvQueue, post_fast, post_recv_list, post_slow};
use crate::object::post::{Longest, Posting, count_of};
use crate::refusal::Refusal;
use crate::status::{DatReturn, OwnCodes, ReturnCodes};
use crate::types::{CompletionFlags, LmrSegment};

impl Ep {
    /// Posts a receive of `count` segments; `segment(i)` is the i-th, and `i` is below `count`. As
    /// the last statement of a function, the call compiles to a jump.
    ///
    /// Returns the code of section 3DAT, `dat_ep_post_recv`, as `C` converts it: `INVALID_STATE` on
    /// an SRQ or without a protection zone, `INVALID_PARAMETER`, `PROTECTION_VIOLATION`,
    /// `PRIVILEGES_VIOLATION`, `INSUFFICIENT_RESOURCES`.
    ///
    /// # Safety
    /// No other post, no bind and no call that is `unsafe` for this reason runs on this endpoint at
    /// the same time, unless its IA is threadsafe; and the request that it was created for is not
    /// rejected meanwhile. The memory of the segments is left alone until the receive completes, or
    /// the endpoint is reset or freed.
    #[inline(always)]
    pub unsafe fn post_recv_with<C: ReturnCodes>(
        &self,
        count: u32,
        segment: impl Fn(usize) -> LmrSegment,
        cookie: u64,
        flags: CompletionFlags,
    ) -> DatReturn {
        // SAFETY: the caller's promise.
        unsafe {
            // One segment and no flags, by one comparison.
            match (count ^ 1) | flags.bits() == 0 {
                true => post_fast::<C, _>(self, segment, cookie),
                false => post_slow::<C, _>(self, segment, cookie, count, flags),
            }
        }
    }

    /// Posts a list of receives without flags; `listed` returns what one of them consists of.
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
        // SAFETY: the caller's promise.
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
    pub unsafe fn post_recv(
        &self,
        segments: &[LmrSegment],
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        // SAFETY: the caller's promise.
        unsafe {
            self.post_recv_with::<OwnCodes>(count_of(segments), |at| segments[at], cookie, flags)
        }
        .into_result()
    }
}

impl RecvQueue for Ep {
    type Poster = Poster;
    const CALL: &'static str = "dat_ep_post_recv";

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
    fn check_post(
        &self,
        poster: &Poster,
        count: u32,
        flags: CompletionFlags,
    ) -> Result<(), Refusal> {
        if let Some(srq) = poster.srq {
            return Err(Refusal::SharedReceives { srq: srq.bits() });
        }
        // Before the segments: without a zone they would all fail with a protection violation.
        if poster.qp.is_none() {
            return Err(Refusal::NoZone);
        }
        // This also refuses more segments than there are places for.
        if count > poster.max_recv_iov {
            return Err(Refusal::TooManySegments {
                count,
                most: poster.max_recv_iov,
                attribute: "max_recv_iov",
                owner: "endpoint",
            });
        }
        let allowed = poster.recv_flags;
        if !allowed.contains(flags) {
            return Err(Refusal::Flags { flags, allowed });
        }
        if poster.marks_unsignalled_receives() {
            self.unsignalled.posting(!flags.is_empty());
        }
        Ok(())
    }

    /// Does nothing unless receives are configured UNSIGNALLED, so that each has a bit in `unsignalled`.
    #[inline(always)]
    fn count_posted(&self, poster: &Poster) {
        if poster.marks_unsignalled_receives() {
            self.unsignalled.posted();
        }
    }

    #[cold]
    unsafe fn make_room(&self, error: PostError) -> bool {
        match error {
            PostError::QueueFull => {
                self.poll_unreported();
                true
            }
            PostError::NotReady => {
                // SAFETY: the caller's promise.
                let entered = unsafe { self.posting.lock() };
                let qp = entered.poster.qp.as_mut();
                qp.is_some_and(|qp| qp.open_receives())
            }
            _ => false,
        }
    }

    #[cold]
    fn refusal(&self, poster: &Poster, error: PostError) -> Refusal {
        match error {
            PostError::QueueFull => Refusal::ReceivesFull {
                depth: poster.max_receives,
            },
            PostError::NotReady => Refusal::NotReady { what: "receives" },
            error => Refusal::Engine { error },
        }
    }
}

impl RecvPoster for Poster {
    #[inline(always)]
    fn longest_fast(&self) -> Longest {
        self.fast.recv
    }

    #[inline(always)]
    fn longest_listed(&self) -> Longest {
        self.fast.recv_list
    }

    #[inline(always)]
    fn zone(&self) -> usize {
        self.zone
    }

    #[inline(always)]
    fn lmr_cache(&mut self) -> &mut LmrCache {
        &mut self.lmr_caches.write
    }

    #[inline(always)]
    unsafe fn try_post(&mut self, request: &RecvRequest<'_>) -> bool {
        // SAFETY: the caller's promise. The limit is not `NONE`.
        unsafe { self.fast_qp().try_post_recv(request) }
    }

    #[inline(always)]
    unsafe fn try_post_list<T>(
        &mut self,
        list: &[T],
        message: impl Fn(&T) -> Option<Message>,
    ) -> usize {
        // SAFETY: as in `try_post`.
        unsafe { self.fast_qp().try_post_recvs(list, message) }
    }

    #[inline(always)]
    unsafe fn post(&mut self, request: &RecvRequest<'_>) -> Result<(), PostError> {
        let qp = self.qp.as_mut().ok_or(PostError::NotReady)?;
        // SAFETY: the caller's promise.
        unsafe { qp.post_recv(request) }
    }
}
