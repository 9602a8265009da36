//! Posting sends, RDMA writes and RDMA reads.

use core::mem::MaybeUninit;
use core::sync::atomic::Ordering;

use dat_engine::{PostError, SendFlags, SendOp, SendRequest};

use super::poster::{Poster, QUIET, SWALLOW};
use super::segments::{
    bad_flags, full, gather, length_error, no_zone, refusal, single, too_long, too_many,
};
use super::{Ep, MAX_SEGMENTS};
use crate::state::{Call, wrong_state};
use crate::status::DatReturn;
use crate::types::{CompletionFlags, EpState, LmrSegment, MemPrivileges, RmrSegment};

/// States in which requests are taken.
const POSTABLE: crate::state::States = Call::PostRequest.legal();

/// Which kind of request, for what differs between them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Request<'a> {
    Send,
    Read(&'a RmrSegment),
    Write(&'a RmrSegment),
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
        unsafe { self.post_request(Request::Send, count, segment, cookie, flags) }
    }

    /// Posts an RDMA read from `remote` into `count` segments.
    ///
    /// # Errors
    /// As for [`Self::post_send_with`]; `LENGTH_ERROR` if the sizes differ;
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
        unsafe { self.post_request(Request::Read(remote), count, segment, cookie, flags) }
    }

    /// Posts an RDMA write of `count` segments to `remote`.
    ///
    /// # Errors
    /// As for [`Self::post_send_with`]; `LENGTH_ERROR` if the sizes differ.
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
        unsafe { self.post_request(Request::Write(remote), count, segment, cookie, flags) }
    }

    #[inline(always)]
    unsafe fn post_request(
        &self,
        kind: Request<'_>,
        count: usize,
        segment: impl Fn(usize) -> LmrSegment,
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        if count == 1 && flags.is_empty() && self.is_connected() {
            let _gate = self.gate.enter();
            // SAFETY: inside the gate, or the caller's promise.
            let poster = unsafe { &mut *self.poster.0.get() };
            let (most, recent, need) = match kind {
                Request::Send => (
                    poster.usual.send,
                    &mut poster.recent.read,
                    MemPrivileges::LOCAL_READ,
                ),
                Request::Read(_) => (
                    poster.usual.read,
                    &mut poster.recent.write,
                    MemPrivileges::LOCAL_WRITE,
                ),
                Request::Write(_) => (
                    poster.usual.write,
                    &mut poster.recent.read,
                    MemPrivileges::LOCAL_READ,
                ),
            };
            let one = segment(0);
            if one.length.wrapping_sub(1) < most
                && let Some(op) = self.usual_op(kind, one.length)
                && let Some(qp) = &mut poster.qp
            {
                let segments = [single(one, recent, poster.zone, need)?];
                poster.unsignalled = 0;
                let mut how = SendFlags::SIGNALED;
                if one.length <= poster.inline && !matches!(kind, Request::Read(_)) {
                    how |= SendFlags::INLINE;
                }
                let request = SendRequest {
                    cookie,
                    op,
                    flags: how,
                    segments: &segments,
                };
                // SAFETY: passed on to the caller.
                if unsafe { qp.post_send_noted(&request, one.length as u32) }.is_ok() {
                    return Ok(());
                }
            }
        }
        // SAFETY: passed on to the caller.
        unsafe { self.post_any(kind, count, segment, cookie, flags) }
    }

    #[inline(always)]
    fn is_connected(&self) -> bool {
        self.state.load(Ordering::Acquire) == EpState::Connected as u32
    }

    /// The operation, if nothing is wrong with it.
    #[inline(always)]
    fn usual_op(&self, kind: Request<'_>, length: u64) -> Option<SendOp> {
        match kind {
            Request::Send => Some(SendOp::Send),
            Request::Read(remote) => (remote.length == length
                && self.reads_issued.load(Ordering::Relaxed) != 0)
                .then_some(SendOp::Read {
                    remote_addr: remote.address,
                    rkey: remote.context,
                }),
            Request::Write(remote) => (remote.length == length).then_some(SendOp::Write {
                remote_addr: remote.address,
                rkey: remote.context,
            }),
        }
    }

    /// Any request.
    #[inline(never)]
    unsafe fn post_any(
        &self,
        kind: Request<'_>,
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
        let (segments, total) = gather(&mut places, count, segment, poster.zone, need)?;
        let op = match kind {
            Request::Send => SendOp::Send,
            Request::Read(remote) => {
                if remote.length != total {
                    return Err(length_error());
                }
                // The device would wait for ever.
                if self.reads_issued.load(Ordering::Relaxed) == 0
                    && state == EpState::Connected as u32
                {
                    return Err(full());
                }
                SendOp::Read {
                    remote_addr: remote.address,
                    rkey: remote.context,
                }
            }
            Request::Write(remote) => {
                if remote.length != total {
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
            return unsafe { self.post_again(&request, note, error) };
        }
        Ok(())
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
    unsafe fn post_again(
        &self,
        request: &SendRequest<'_>,
        note: u32,
        error: PostError,
    ) -> Result<(), DatReturn> {
        if error == PostError::QueueFull {
            self.take_suppressed();
        }
        let _gate = self.gate.enter();
        // SAFETY: as in `post_request`.
        let poster = unsafe { &mut *self.poster.0.get() };
        let qp = poster.qp.as_mut().ok_or_else(no_zone)?;
        if error == PostError::NotReady {
            qp.open_sends();
        }
        // SAFETY: passed on to the caller.
        unsafe { qp.post_send_noted(request, note) }.map_err(refusal)
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
