//! Posting receives to a shared queue.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;

use dat_engine::{ControlError, PostError, RecvRequest, SharedReceiveQueue};

use super::Srq;
use crate::object::ep::{LONGEST, MAX_SEGMENTS, Way, found, gather, refusal, single, too_many};
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
    ///
    /// # Safety
    /// As for [`Srq::resize`].
    pub(super) unsafe fn resize_queue(&self, receives: u32) -> Result<(), ControlError> {
        let _gate = self.gate.enter();
        // SAFETY: inside the gate, or the caller's promise.
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
    /// No other post and no [`Srq::resize`] runs on this queue at the same time,
    /// unless its IA is threadsafe. The memory of the segments is left alone until the receive
    /// completes, or the queue and all its endpoints are gone.
    #[inline(always)]
    pub unsafe fn post_recv_with(
        &self,
        count: usize,
        segment: impl Fn(usize) -> LmrSegment,
        cookie: u64,
    ) -> Result<(), DatReturn> {
        // SAFETY: passed on to the caller.
        unsafe {
            if count == 1 {
                self.post_one(|| segment(0), cookie)
            } else {
                self.post_any(count, segment, cookie)
            }
        }
        .into_result()
    }

    /// Posts a receive of one segment, which is a function's last act: it ends
    /// in a jump.
    ///
    /// # Safety
    /// As for [`Self::post_recv_with`].
    #[inline(always)]
    pub unsafe fn post_one(&self, segment: impl Fn() -> LmrSegment, cookie: u64) -> DatReturn {
        // SAFETY: passed on to the caller.
        unsafe {
            match self.way {
                Way::Direct => self.post_direct(segment, cookie),
                Way::Verbs | Way::Guarded => self.post_guarded(segment, cookie),
            }
        }
    }

    /// On the device's rings, with the caller's promise that nobody else posts.
    /// Like [`Ep::post_one_recv`] for endpoints.
    ///
    /// [`Ep::post_one_recv`]: crate::object::ep::Ep::post_one_recv
    #[inline(never)]
    #[allow(improper_ctypes_definitions, reason = "only Rust calls it")]
    unsafe extern "C" fn post_direct(
        &self,
        segment: impl Fn() -> LmrSegment,
        cookie: u64,
    ) -> DatReturn {
        // SAFETY: the caller's promise; there is no gate.
        let poster = unsafe { &mut *self.poster.0.get() };
        let one = segment();
        if one.length.wrapping_sub(1) < LONGEST
            && let Some(segment) = found(one, &poster.recent)
        {
            let segments = [segment];
            let request = RecvRequest {
                cookie,
                segments: &segments,
            };
            // SAFETY: else it had another way.
            unsafe { core::hint::assert_unchecked(poster.queue.is_direct()) };
            // SAFETY: passed on to the caller.
            if unsafe { poster.queue.post_plain(&request) } {
                return DatReturn::SUCCESS;
            }
        }
        // SAFETY: passed on to the caller.
        unsafe { self.post_guarded(segment, cookie) }
    }

    /// The same inside the gate, if there is one; and where something stands in
    /// the way.
    #[inline(never)]
    #[allow(improper_ctypes_definitions, reason = "only Rust calls it")]
    unsafe extern "C" fn post_guarded(
        &self,
        segment: impl Fn() -> LmrSegment,
        cookie: u64,
    ) -> DatReturn {
        let one = segment();
        if one.length.wrapping_sub(1) < LONGEST {
            let _gate = self.gate.enter();
            // SAFETY: inside the gate, or the caller's promise.
            let poster = unsafe { &mut *self.poster.0.get() };
            let need = MemPrivileges::LOCAL_WRITE;
            let segments = match single(one, &mut poster.recent, self.zone, need) {
                Ok(segment) => [segment],
                Err(code) => return code,
            };
            let request = RecvRequest {
                cookie,
                segments: &segments,
            };
            // SAFETY: passed on to the caller.
            if unsafe { poster.queue.post_plain(&request) } {
                return DatReturn::SUCCESS;
            }
        }
        // SAFETY: passed on to the caller.
        unsafe { self.post_any(1, |_| segment(), cookie) }
    }

    /// Any receive.
    #[inline(never)]
    unsafe fn post_any(
        &self,
        count: usize,
        segment: impl Fn(usize) -> LmrSegment,
        cookie: u64,
    ) -> DatReturn {
        // SAFETY: passed on to the caller.
        unsafe { self.try_any(count, segment, cookie) }.into()
    }

    #[inline(always)]
    unsafe fn try_any(
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
        self.look_for_room();
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
