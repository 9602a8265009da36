//! Posting receives to a shared queue.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;

use dat_engine::{ControlError, PostError, RecvRequest, SharedReceiveQueue};

use super::Srq;
use crate::object::ep::{LONGEST, MAX_SEGMENTS, gather, refusal, single, too_many};
use crate::object::lmr::Recent;
use crate::status::DatReturn;
use crate::types::{LmrSegment, MemPrivileges};

/// The posting half, for one call at a time.
pub(super) struct PosterCell(UnsafeCell<Poster>);

struct Poster {
    queue: SharedReceiveQueue,
    /// The LMR that was used last.
    recent: Recent,
}

// SAFETY: the queue is reached by posts alone, inside the gate; who posts to a
// queue without one has promised that no other post runs meanwhile.
unsafe impl Sync for PosterCell {}

impl PosterCell {
    pub(super) fn new(queue: SharedReceiveQueue) -> Self {
        Self(UnsafeCell::new(Poster {
            queue,
            recent: Recent::default(),
        }))
    }
}

impl Srq {
    /// Makes room for so many receives.
    ///
    /// # Errors
    /// As [`SharedReceiveQueue::resize`].
    pub(super) fn resize_queue(&self, receives: u32) -> Result<(), ControlError> {
        let _gate = self.gate.enter();
        // SAFETY: inside the gate, or the consumer serialises calls on the
        // queue, this one among them.
        let poster = unsafe { &mut *self.poster.0.get() };
        poster.queue.resize(receives)
    }

    /// Posts a receive of `count` segments; `segment(i)` is the i-th.
    ///
    /// # Errors
    /// Section 3DAT, `dat_srq_post_recv`: `INVALID_PARAMETER`,
    /// `PROTECTION_VIOLATION`, `PRIVILEGES_VIOLATION`,
    /// `INSUFFICIENT_RESOURCES`.
    ///
    /// # Safety
    /// No other call on this queue runs at the same time, unless its IA is
    /// threadsafe. The memory of the segments is left alone until the receive
    /// completes, or the queue and all its endpoints are gone.
    #[inline(always)]
    pub unsafe fn post_recv_with(
        &self,
        count: usize,
        segment: impl Fn(usize) -> LmrSegment,
        cookie: u64,
    ) -> Result<(), DatReturn> {
        if count == 1 {
            let one = segment(0);
            if one.length.wrapping_sub(1) < LONGEST {
                let _gate = self.gate.enter();
                // SAFETY: inside the gate, or the caller's promise.
                let poster = unsafe { &mut *self.poster.0.get() };
                let need = MemPrivileges::LOCAL_WRITE;
                let segments = [single(one, &mut poster.recent, self.zone, need)?];
                let request = RecvRequest {
                    cookie,
                    segments: &segments,
                };
                // SAFETY: passed on to the caller.
                if unsafe { poster.queue.post(&request) }.is_ok() {
                    return Ok(());
                }
            }
        }
        // SAFETY: passed on to the caller.
        unsafe { self.post_any(count, segment, cookie) }
    }

    /// Any receive.
    #[inline(never)]
    unsafe fn post_any(
        &self,
        count: usize,
        segment: impl Fn(usize) -> LmrSegment,
        cookie: u64,
    ) -> Result<(), DatReturn> {
        if count > self.max_iov as usize {
            return Err(too_many());
        }
        let mut places = [const { MaybeUninit::uninit() }; MAX_SEGMENTS];
        let (segments, _) = gather(
            &mut places,
            count,
            segment,
            self.zone,
            MemPrivileges::LOCAL_WRITE,
        )?;
        let request = RecvRequest { cookie, segments };
        // SAFETY: passed on to the caller.
        match unsafe { self.post(&request) } {
            Ok(()) => Ok(()),
            // SAFETY: passed on to the caller.
            Err(error) => unsafe { self.post_again(&request, error) },
        }
    }

    #[inline(always)]
    unsafe fn post(&self, request: &RecvRequest<'_>) -> Result<(), PostError> {
        let _gate = self.gate.enter();
        // SAFETY: inside the gate, or the caller's promise.
        let poster = unsafe { &mut *self.poster.0.get() };
        // SAFETY: passed on to the caller.
        unsafe { poster.queue.post(request) }
    }

    /// The queue is full: looks once whether some of it has been used.
    #[cold]
    #[inline(never)]
    unsafe fn post_again(
        &self,
        request: &RecvRequest<'_>,
        error: PostError,
    ) -> Result<(), DatReturn> {
        if error != PostError::QueueFull {
            return Err(refusal(error));
        }
        self.take_completions();
        // SAFETY: passed on to the caller.
        unsafe { self.post(request) }.map_err(|error| {
            self.refused.note(error);
            refusal(error)
        })
    }

    /// [`Self::post_recv_with`] of an array.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// As there.
    #[inline]
    pub unsafe fn post_recv(&self, segments: &[LmrSegment], cookie: u64) -> Result<(), DatReturn> {
        // SAFETY: passed on to the caller.
        unsafe { self.post_recv_with(segments.len(), |at| segments[at], cookie) }
    }
}
