//! Posting sends, RDMA writes and RDMA reads.

use core::mem::MaybeUninit;
use core::sync::atomic::Ordering;

use dat_engine::{PostError, SendFlags, SendOp, SendRequest};

use super::poster::{Poster, QUIET, SWALLOW, is_usual};
use super::segments::{
    bad_flags, first_bytes, full, gather, length_error, no_zone, too_long, too_many,
};
use super::{Ep, MAX_SEGMENTS};
use crate::state::{Call, wrong_state};
use crate::status::{DatReturn, ReturnType, Subtype};
use crate::types::{CompletionFlags, EpState, LmrSegment, MemPrivileges, RmrSegment};

/// States in which requests are taken.
const POSTABLE: crate::state::States = Call::PostRequest.legal();

/// Which kind of request, for what differs between them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Request {
    Send,
    Read(RmrSegment),
    Write(RmrSegment),
}

impl Ep {
    /// Posts a send of `count` segments; `segment(i)` is the i-th.
    ///
    /// # Errors
    /// Section 3DAT, `dat_ep_post_send`: `INVALID_STATE`, `INVALID_PARAMETER`,
    /// `PROTECTION_VIOLATION`, `PRIVILEGES_VIOLATION`,
    /// `INSUFFICIENT_RESOURCES`.
    ///
    /// # Safety
    /// As for [`Self::post_recv_with`]; and memory that an LMR with local read
    /// covers is mapped.
    #[inline(always)]
    pub unsafe fn post_send_with(
        &self,
        count: usize,
        segment: impl Fn(usize) -> LmrSegment,
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        // SAFETY: passed on to the caller.
        unsafe { self.post_request(|| Request::Send, count, segment, cookie, flags) }.into_result()
    }

    /// [`Self::post_send_with`] of one segment, without flags; see
    /// [`Self::post_one_recv`].
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    pub unsafe fn post_one_send(&self, segment: impl Fn() -> LmrSegment, cookie: u64) -> DatReturn {
        let kind = || Request::Send;
        // SAFETY: passed on to the caller.
        unsafe { self.post_one(kind, segment, cookie) }
    }

    /// Posts an RDMA read from `remote` into `count` segments.
    ///
    /// # Errors
    /// As for [`Self::post_send_with`]; `LENGTH_ERROR` if the segments hold less;
    /// `INSUFFICIENT_RESOURCES` also if no reads were agreed on.
    ///
    /// # Safety
    /// As for [`Self::post_recv_with`].
    #[inline(always)]
    pub unsafe fn post_rdma_read_with(
        &self,
        count: usize,
        segment: impl Fn(usize) -> LmrSegment,
        cookie: u64,
        remote: &RmrSegment,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        // SAFETY: passed on to the caller.
        unsafe { self.post_request(|| Request::Read(*remote), count, segment, cookie, flags) }
            .into_result()
    }

    /// [`Self::post_rdma_read_with`] of one segment, without flags; see
    /// [`Self::post_one_recv`].
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    pub unsafe fn post_one_rdma_read(
        &self,
        segment: impl Fn() -> LmrSegment,
        cookie: u64,
        remote: impl Fn() -> RmrSegment,
    ) -> DatReturn {
        let kind = move || Request::Read(remote());
        // SAFETY: passed on to the caller.
        unsafe { self.post_one(kind, segment, cookie) }
    }

    /// Posts an RDMA write of `count` segments to `remote`.
    ///
    /// # Errors
    /// As for [`Self::post_send_with`]; `LENGTH_ERROR` if `remote` holds less.
    ///
    /// # Safety
    /// As for [`Self::post_send_with`].
    #[inline(always)]
    pub unsafe fn post_rdma_write_with(
        &self,
        count: usize,
        segment: impl Fn(usize) -> LmrSegment,
        cookie: u64,
        remote: &RmrSegment,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        // SAFETY: passed on to the caller.
        unsafe { self.post_request(|| Request::Write(*remote), count, segment, cookie, flags) }
            .into_result()
    }

    /// [`Self::post_rdma_write_with`] of one segment, without flags; see
    /// [`Self::post_one_recv`].
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    pub unsafe fn post_one_rdma_write(
        &self,
        segment: impl Fn() -> LmrSegment,
        cookie: u64,
        remote: impl Fn() -> RmrSegment,
    ) -> DatReturn {
        let kind = move || Request::Write(remote());
        // SAFETY: passed on to the caller.
        unsafe { self.post_one(kind, segment, cookie) }
    }

    #[inline(always)]
    unsafe fn post_request(
        &self,
        kind: impl Fn() -> Request,
        count: usize,
        segment: impl Fn(usize) -> LmrSegment,
        cookie: u64,
        flags: CompletionFlags,
    ) -> DatReturn {
        // SAFETY: passed on to the caller.
        unsafe {
            if is_usual(count, flags) {
                self.post_one(kind, || segment(0), cookie)
            } else {
                self.post_any(kind(), count, segment, cookie, flags)
            }
        }
    }

    /// Any request.
    #[inline(never)]
    pub(super) unsafe fn post_any(
        &self,
        kind: Request,
        count: usize,
        segment: impl Fn(usize) -> LmrSegment,
        cookie: u64,
        flags: CompletionFlags,
    ) -> DatReturn {
        // SAFETY: passed on to the caller.
        unsafe { self.try_any(kind, count, segment, cookie, flags) }.into()
    }

    #[inline(always)]
    unsafe fn try_any(
        &self,
        kind: Request,
        count: usize,
        segment: impl Fn(usize) -> LmrSegment,
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        let gate = self.gate.enter();
        let state = self.state.load(Ordering::Acquire);
        // SAFETY: inside the gate, or the caller's promise.
        let poster = unsafe { &mut *self.poster.0.get() };
        let (most_segments, allowed, need, most_bytes) = match kind {
            Request::Send => (
                poster.max_request_iov,
                poster.send_flags,
                MemPrivileges::LOCAL_READ,
                poster.max_message,
            ),
            Request::Read(_) => (
                poster.max_read_iov,
                poster.rdma_flags,
                MemPrivileges::LOCAL_WRITE,
                poster.max_rdma,
            ),
            Request::Write(_) => (
                poster.max_write_iov,
                poster.rdma_flags,
                MemPrivileges::LOCAL_READ,
                poster.max_rdma,
            ),
        };
        if state != EpState::Connected as u32 && !POSTABLE.has(super::state_of(state)) {
            return Err(wrong_state(super::state_of(state)));
        }
        if !allowed.contains(flags) {
            return Err(bad_flags());
        }
        if count > most_segments as usize {
            return Err(too_many());
        }
        let mut places = [const { MaybeUninit::uninit() }; MAX_SEGMENTS];
        let (mut segments, mut total) = gather(&mut places, count, segment, poster.zone, need)?;
        let op = match kind {
            Request::Send => SendOp::Send,
            Request::Read(remote) => {
                if remote.length > total {
                    return Err(length_error());
                }
                if remote.length < total {
                    segments = first_bytes(segments, remote.length);
                    total = remote.length;
                }
                // The device would wait for ever.
                if self.reads_issued.load(Ordering::Relaxed) == 0
                    && state == EpState::Connected as u32
                {
                    return Err(self.no_reads());
                }
                SendOp::Read {
                    remote_addr: remote.address,
                    rkey: remote.context,
                }
            }
            Request::Write(remote) => {
                if remote.length < total {
                    return Err(length_error());
                }
                SendOp::Write {
                    remote_addr: remote.address,
                    rkey: remote.context,
                }
            }
        };
        if total > most_bytes {
            return Err(if kind == Request::Send {
                too_long()
            } else {
                length_error()
            });
        }
        let mut how = SendFlags::SIGNALED;
        let mut note = total as u32;
        if total <= poster.inline && !matches!(kind, Request::Read(_)) {
            how |= SendFlags::INLINE;
        }
        if !flags.is_empty() {
            (how, note) = self.unusual(poster, flags, how, note);
        } else {
            poster.unsignalled = 0;
        }
        let Some(qp) = &mut poster.qp else {
            return Err(no_zone());
        };
        let request = SendRequest {
            cookie,
            op,
            flags: how,
            segments,
        };
        // SAFETY: passed on to the caller.
        if let Err(error) = unsafe { qp.post_send_noted(&request, note) } {
            drop(gate);
            // SAFETY: passed on to the caller.
            return unsafe { self.post_again(&request, note, error) }.into_result();
        }
        Ok(())
    }

    /// Why no RDMA read can be posted: none were agreed on, or the device has none.
    #[cold]
    #[inline(never)]
    fn no_reads(&self) -> DatReturn {
        match self.ia.attributes().max_rdma_read_per_ep_out {
            0 => DatReturn::error(ReturnType::ModelNotSupported, Subtype::NoSubtype),
            _ => full(),
        }
    }

    /// A request with completion flags.
    #[cold]
    #[inline(never)]
    fn unusual(
        &self,
        poster: &mut Poster,
        flags: CompletionFlags,
        mut how: SendFlags,
        mut note: u32,
    ) -> (SendFlags, u32) {
        how.set(
            SendFlags::SOLICITED,
            flags.contains(CompletionFlags::SOLICITED_WAIT),
        );
        how.set(
            SendFlags::FENCE,
            flags.contains(CompletionFlags::BARRIER_FENCE),
        );
        if flags.contains(CompletionFlags::BARRIER_FENCE) {
            // What is copied into the request is copied now, before the reads
            // that it is to wait for have brought anything.
            how -= SendFlags::INLINE;
        }
        if flags.contains(CompletionFlags::SUPPRESS) {
            poster.unsignalled += 1;
            if poster.unsignalled <= poster.most_unsignalled {
                how -= SendFlags::SIGNALED;
                return (how, note);
            }
            note = SWALLOW;
        } else if flags.contains(CompletionFlags::UNSIGNALLED) {
            note |= QUIET;
        }
        poster.unsignalled = 0;
        if note & QUIET != 0 {
            self.want_completions();
        }
        (how, note)
    }

    /// The engine has refused a request: makes what room there is, and tries
    /// once more.
    #[cold]
    #[inline(never)]
    pub(super) unsafe fn post_again(
        &self,
        request: &SendRequest<'_>,
        note: u32,
        error: PostError,
    ) -> DatReturn {
        if error == PostError::QueueFull {
            self.take_suppressed();
        }
        let _gate = self.gate.enter();
        // SAFETY: as in `post_request`.
        let poster = unsafe { &mut *self.poster.0.get() };
        let Some(qp) = &mut poster.qp else {
            return no_zone();
        };
        if error == PostError::NotReady {
            qp.open_sends();
        }
        // SAFETY: passed on to the caller.
        unsafe { qp.post_send_noted(request, note) }
            .map_err(|error| self.refuse(error))
            .into()
    }

    /// [`Self::post_send_with`] of an array.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// As there.
    #[inline]
    pub unsafe fn post_send(
        &self,
        segments: &[LmrSegment],
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        // SAFETY: passed on to the caller.
        unsafe { self.post_send_with(segments.len(), |at| segments[at], cookie, flags) }
    }

    /// [`Self::post_rdma_read_with`] of an array.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// As there.
    #[inline]
    pub unsafe fn post_rdma_read(
        &self,
        segments: &[LmrSegment],
        cookie: u64,
        remote: &RmrSegment,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        // SAFETY: passed on to the caller.
        unsafe {
            self.post_rdma_read_with(segments.len(), |at| segments[at], cookie, remote, flags)
        }
    }

    /// [`Self::post_rdma_write_with`] of an array.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// As there.
    #[inline]
    pub unsafe fn post_rdma_write(
        &self,
        segments: &[LmrSegment],
        cookie: u64,
        remote: &RmrSegment,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        // SAFETY: passed on to the caller.
        unsafe {
            self.post_rdma_write_with(segments.len(), |at| segments[at], cookie, remote, flags)
        }
    }
}
