//! Posting receives to an endpoint's own queue.

use core::mem::MaybeUninit;
use core::sync::atomic::Ordering;

use dat_engine::route::{self, Posts, Route};
use dat_engine::{PostError, RecvRequest};

use super::poster::{Poster, is_usual};
use super::segments::{bad_flags, found, gather, no_zone, single, too_many};
use super::way::Way;
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
    /// No other post, no bind and no call that is `unsafe` for that runs on this
    /// endpoint at the same time, unless its IA is threadsafe; and a request that
    /// has brought it is not ended meanwhile. The memory of the segments is left alone until the receive
    /// completes, or the endpoint is reset or freed.
    #[inline(always)]
    pub unsafe fn post_recv_with(
        &self,
        count: usize,
        segment: impl Fn(usize) -> LmrSegment,
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        // SAFETY: passed on to the caller.
        unsafe {
            if is_usual(count, flags) {
                self.post_one_recv(|| segment(0), cookie)
            } else {
                self.post_recv_any(count, segment, cookie, flags)
            }
        }
        .into_result()
    }

    /// Posts a receive of one segment, without flags, which is a function's
    /// last act: it ends in a jump.
    ///
    /// # Safety
    /// As for [`Self::post_recv_with`].
    #[inline(always)]
    pub unsafe fn post_one_recv(&self, segment: impl Fn() -> LmrSegment, cookie: u64) -> DatReturn {
        // SAFETY: passed on to the caller.
        unsafe {
            match self.way {
                Way::Direct => self.post_recv_by::<route::Direct>(segment, cookie),
                Way::Verbs => self.post_recv_by::<route::Verbs>(segment, cookie),
                Way::Guarded => self.post_recv_guarded(segment, cookie),
            }
        }
    }

    /// Where nothing stands in the way. A function of C does not unwind, so
    /// that C's own calls can jump to it.
    #[inline(never)]
    #[allow(improper_ctypes_definitions, reason = "only Rust calls it")]
    unsafe extern "C" fn post_recv_by<R: Route>(
        &self,
        segment: impl Fn() -> LmrSegment,
        cookie: u64,
    ) -> DatReturn {
        // SAFETY: the caller's promise; there is no gate.
        let poster = unsafe { &mut *self.poster.0.get() };
        let one = segment();
        if one.length.wrapping_sub(1) < poster.usual(|usual| usual.recv)
            && let Some(segment) = found(one, &poster.recent.write)
            // SAFETY: as compared; `R` is that of the way.
            && let Some(queue) = unsafe { poster.usual_queue::<R>() }
        {
            let segments = [segment];
            let request = RecvRequest {
                cookie,
                segments: &segments,
            };
            // SAFETY: passed on to the caller.
            if unsafe { queue.post_recv(&request) } {
                self.count_posted();
                return DatReturn::SUCCESS;
            }
        }
        // SAFETY: passed on to the caller.
        unsafe { self.post_recv_guarded(segment, cookie) }
    }

    /// The same inside the gate, if there is one; and where something does
    /// stand in the way.
    #[inline(never)]
    #[allow(improper_ctypes_definitions, reason = "only Rust calls it")]
    unsafe extern "C" fn post_recv_guarded(
        &self,
        segment: impl Fn() -> LmrSegment,
        cookie: u64,
    ) -> DatReturn {
        let gate = self.gate.enter();
        // SAFETY: inside the gate, or the caller's promise.
        let poster = unsafe { &mut *self.poster.0.get() };
        let one = segment();
        if one.length.wrapping_sub(1) < poster.usual(|usual| usual.recv)
            && let Some(qp) = &mut poster.qp
        {
            let recent = &mut poster.recent.write;
            let need = MemPrivileges::LOCAL_WRITE;
            let segments = match single(one, recent, poster.zone, need) {
                Ok(segment) => [segment],
                Err(code) => return code,
            };
            let request = RecvRequest {
                cookie,
                segments: &segments,
            };
            // SAFETY: passed on to the caller.
            if let Err(error) = unsafe { qp.post_recv(&request) } {
                drop(gate);
                // SAFETY: passed on to the caller.
                return unsafe { self.post_recv_again(&request, error) };
            }
            self.count_posted();
            return DatReturn::SUCCESS;
        }
        drop(gate);
        // SAFETY: passed on to the caller.
        unsafe { self.post_recv_any(1, |_| segment(), cookie, CompletionFlags::empty()) }
    }

    /// A receive is posted; the gate, or the caller, keeps others from it.
    #[inline(always)]
    fn count_posted(&self) {
        let number = self.posted.load(Ordering::Relaxed);
        self.posted.store(number.wrapping_add(1), Ordering::Relaxed);
    }

    /// Any receive.
    #[inline(never)]
    unsafe fn post_recv_any(
        &self,
        count: usize,
        segment: impl Fn(usize) -> LmrSegment,
        cookie: u64,
        flags: CompletionFlags,
    ) -> DatReturn {
        // SAFETY: passed on to the caller.
        unsafe { self.try_recv_any(count, segment, cookie, flags) }.into()
    }

    #[inline(always)]
    unsafe fn try_recv_any(
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
            return unsafe { self.post_recv_again(&request, error) }.into_result();
        }
        self.count_posted();
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
    unsafe fn post_recv_again(&self, request: &RecvRequest<'_>, error: PostError) -> DatReturn {
        if error == PostError::QueueFull {
            self.take_unwanted();
        }
        let _gate = self.gate.enter();
        // SAFETY: as in `post_recv_with`.
        let poster = unsafe { &mut *self.poster.0.get() };
        let Some(qp) = &mut poster.qp else {
            return no_zone();
        };
        if error == PostError::NotReady {
            qp.open_receives();
        }
        // SAFETY: passed on to the caller.
        if let Err(error) = unsafe { qp.post_recv(request) } {
            return self.refuse(error);
        }
        self.count_posted();
        DatReturn::SUCCESS
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
