//! Posting receives to an endpoint's own queue.

use core::mem::MaybeUninit;
use core::sync::atomic::Ordering;

use dat_engine::{PostError, RecvRequest};

use super::poster::Poster;
use super::segments::{bad_flags, gather, no_zone, refusal, single, too_many};
use super::{Ep, MAX_SEGMENTS};
use crate::status::{DatReturn, ReturnType, Subtype};
use crate::types::{CompletionFlags, LmrSegment, MemPrivileges};

impl Ep {
    /// Posts a receive of `count` segments; `segment(i)` is the i-th.
    ///
    /// # Errors
    /// Section 3DAT, `dat_ep_post_recv`: `INVALID_STATE` on an SRQ or without a
    /// protection zone, `INVALID_PARAMETER`, `PROTECTION_VIOLATION`,
    /// `PRIVILEGES_VIOLATION`, `INSUFFICIENT_RESOURCES`.
    ///
    /// # Safety
    /// No other call on this endpoint runs at the same time, unless its IA is
    /// threadsafe. The memory of the segments is left alone until the receive
    /// completes, or the endpoint is reset or freed.
    #[inline(always)]
    pub unsafe fn post_recv_with(
        &self,
        count: usize,
        segment: impl Fn(usize) -> LmrSegment,
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        if count == 1 && flags.is_empty() {
            let _gate = self.gate.enter();
            // SAFETY: inside the gate, or the caller's promise.
            let poster = unsafe { &mut *self.poster.0.get() };
            let one = segment(0);
            if one.length.wrapping_sub(1) < poster.usual.recv
                && let Some(qp) = &mut poster.qp
            {
                let recent = &mut poster.recent.write;
                let need = MemPrivileges::LOCAL_WRITE;
                let segments = [single(one, recent, poster.zone, need)?];
                let request = RecvRequest {
                    cookie,
                    segments: &segments,
                };
                // SAFETY: passed on to the caller.
                if unsafe { qp.post_recv(&request) }.is_ok() {
                    let number = self.posted.load(Ordering::Relaxed);
                    self.posted.store(number.wrapping_add(1), Ordering::Relaxed);
                    return Ok(());
                }
            }
        }
        // SAFETY: passed on to the caller.
        unsafe { self.post_recv_any(count, segment, cookie, flags) }
    }

    /// Any receive.
    #[inline(never)]
    unsafe fn post_recv_any(
        &self,
        count: usize,
        segment: impl Fn(usize) -> LmrSegment,
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        let gate = self.gate.enter();
        // SAFETY: inside the gate, or the caller's promise.
        let poster = unsafe { &mut *self.poster.0.get() };
        // Also more than there are places for.
        if count > poster.max_recv_iov as usize || poster.shared {
            return Err(poster.no_recv());
        }
        // Before the segments: no zone of theirs is that of an endpoint without.
        if poster.qp.is_none() {
            return Err(no_zone());
        }
        let mut places = [const { MaybeUninit::uninit() }; MAX_SEGMENTS];
        let (segments, _) = gather(
            &mut places,
            count,
            segment,
            poster.zone,
            MemPrivileges::LOCAL_WRITE,
        )?;
        let Some(qp) = &mut poster.qp else {
            return Err(no_zone());
        };
        let number = self.posted.load(Ordering::Relaxed);
        if !(flags.is_empty() && poster.recv_flags.is_empty()) {
            self.note_recv(poster.recv_flags, number, flags)?;
        }
        let request = RecvRequest { cookie, segments };
        // SAFETY: passed on to the caller.
        if let Err(error) = unsafe { qp.post_recv(&request) } {
            drop(gate);
            // SAFETY: passed on to the caller.
            unsafe { self.post_recv_again(&request, error) }?;
        }
        self.posted.store(number.wrapping_add(1), Ordering::Relaxed);
        Ok(())
    }

    #[cold]
    fn note_recv(
        &self,
        allowed: CompletionFlags,
        number: u32,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        if !allowed.contains(flags) {
            return Err(bad_flags());
        }
        self.quiet.posting(number, !flags.is_empty());
        Ok(())
    }

    /// The engine has refused a receive: makes what room there is, and tries
    /// once more.
    #[cold]
    #[inline(never)]
    unsafe fn post_recv_again(
        &self,
        request: &RecvRequest<'_>,
        error: PostError,
    ) -> Result<(), DatReturn> {
        if error == PostError::QueueFull {
            self.take_unwanted();
        }
        let _gate = self.gate.enter();
        // SAFETY: as in `post_recv_with`.
        let poster = unsafe { &mut *self.poster.0.get() };
        let qp = poster.qp.as_mut().ok_or_else(no_zone)?;
        if error == PostError::NotReady {
            qp.open_receives();
        }
        // SAFETY: passed on to the caller.
        unsafe { qp.post_recv(request) }.map_err(refusal)
    }

    /// [`Self::post_recv_with`] of an array.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// As there.
    #[inline]
    pub unsafe fn post_recv(
        &self,
        segments: &[LmrSegment],
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        // SAFETY: passed on to the caller.
        unsafe { self.post_recv_with(segments.len(), |at| segments[at], cookie, flags) }
    }
}

impl Poster {
    /// Why there is no receive.
    #[cold]
    fn no_recv(&self) -> DatReturn {
        if self.shared {
            DatReturn::error(ReturnType::InvalidState, Subtype::InvalidStateSrqInUse)
        } else if self.qp.is_none() {
            no_zone()
        } else {
            too_many()
        }
    }
}
