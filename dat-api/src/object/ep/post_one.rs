//! Posting the usual request: one segment, no flags, and nothing wrong.

use core::sync::atomic::Ordering;

use dat_engine::route::{self, Posts, Route};
use dat_engine::{SendFlags, SendOp, SendRequest};

use super::Ep;
use super::post_request::Request;
use super::segments::{found, single};
use super::way::Way;
use crate::status::DatReturn;
use crate::types::{CompletionFlags, EpState, LmrSegment, MemPrivileges};

impl Ep {
    /// `kind` is asked where it is needed, and is always of one kind.
    #[inline(always)]
    pub(super) unsafe fn post_one(
        &self,
        kind: impl Fn() -> Request,
        segment: impl Fn() -> LmrSegment,
        cookie: u64,
    ) -> DatReturn {
        // SAFETY: passed on to the caller.
        unsafe {
            match self.way {
                Way::Direct => self.post_one_by::<route::Direct>(kind, segment, cookie),
                Way::Verbs => self.post_one_by::<route::Verbs>(kind, segment, cookie),
                Way::Guarded => self.post_one_guarded(kind, segment, cookie),
            }
        }
    }

    /// Where nothing stands in the way; see [`Self::post_recv_by`].
    #[inline(never)]
    #[allow(improper_ctypes_definitions, reason = "only Rust calls it")]
    unsafe extern "C" fn post_one_by<R: Route>(
        &self,
        kind: impl Fn() -> Request,
        segment: impl Fn() -> LmrSegment,
        cookie: u64,
    ) -> DatReturn {
        // SAFETY: the caller's promise; there is no gate.
        let poster = unsafe { &mut *self.poster.0.get() };
        let one = segment();
        let (most, recent) = match kind() {
            Request::Send => (poster.usual(|usual| usual.send), &poster.recent.read),
            Request::Read(_) => (poster.usual(|usual| usual.read), &poster.recent.write),
            Request::Write(_) => (poster.usual(|usual| usual.write), &poster.recent.read),
        };
        if self.is_connected()
            && one.length.wrapping_sub(1) < most
            && let Some(op) = self.usual_op(kind(), one.length)
            && let Some(segment) = found(one, recent)
        {
            poster.unsignalled = 0;
            let segments = [segment];
            let how = usual_flags(kind(), one.length, poster.inline);
            let request = SendRequest {
                cookie,
                op,
                flags: how,
                segments: &segments,
            };
            // SAFETY: as compared, and `R` is that of the way; the rest is passed on
            // to the caller.
            let posted = unsafe {
                let queue = poster.usual_queue::<R>();
                queue.is_some_and(|queue| queue.post_send(&request, one.length as u32))
            };
            if posted {
                return DatReturn::SUCCESS;
            }
        }
        // SAFETY: passed on to the caller.
        unsafe { self.post_one_guarded(kind, segment, cookie) }
    }

    /// The same inside the gate, if there is one; and where something does
    /// stand in the way.
    #[inline(never)]
    #[allow(improper_ctypes_definitions, reason = "only Rust calls it")]
    unsafe extern "C" fn post_one_guarded(
        &self,
        kind: impl Fn() -> Request,
        segment: impl Fn() -> LmrSegment,
        cookie: u64,
    ) -> DatReturn {
        let kind = kind();
        if self.is_connected() {
            let gate = self.gate.enter();
            // SAFETY: inside the gate, or the caller's promise.
            let poster = unsafe { &mut *self.poster.0.get() };
            let (most, recent, need) = match kind {
                Request::Send => (
                    poster.usual(|usual| usual.send),
                    &mut poster.recent.read,
                    MemPrivileges::LOCAL_READ,
                ),
                Request::Read(_) => (
                    poster.usual(|usual| usual.read),
                    &mut poster.recent.write,
                    MemPrivileges::LOCAL_WRITE,
                ),
                Request::Write(_) => (
                    poster.usual(|usual| usual.write),
                    &mut poster.recent.read,
                    MemPrivileges::LOCAL_READ,
                ),
            };
            let one = segment();
            if one.length.wrapping_sub(1) < most
                && let Some(op) = self.usual_op(kind, one.length)
                && let Some(qp) = &mut poster.qp
            {
                let segments = match single(one, recent, poster.zone, need) {
                    Ok(segment) => [segment],
                    Err(code) => return code,
                };
                poster.unsignalled = 0;
                let request = SendRequest {
                    cookie,
                    op,
                    flags: usual_flags(kind, one.length, poster.inline),
                    segments: &segments,
                };
                let note = one.length as u32;
                // SAFETY: passed on to the caller.
                if let Err(error) = unsafe { qp.post_send_noted(&request, note) } {
                    drop(gate);
                    // SAFETY: passed on to the caller.
                    return unsafe { self.post_again(&request, note, error) };
                }
                return DatReturn::SUCCESS;
            }
        }
        // SAFETY: passed on to the caller.
        unsafe { self.post_any(kind, 1, |_| segment(), cookie, CompletionFlags::empty()) }
    }

    #[inline(always)]
    fn is_connected(&self) -> bool {
        self.state.load(Ordering::Acquire) == EpState::Connected as u32
    }

    /// The operation, if nothing is wrong with it and it fills what receives it.
    #[inline(always)]
    fn usual_op(&self, kind: Request, length: u64) -> Option<SendOp> {
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
}

/// How a request without flags is carried out.
#[inline(always)]
fn usual_flags(kind: Request, length: u64, inline: u64) -> SendFlags {
    if length <= inline && !matches!(kind, Request::Read(_)) {
        SendFlags::SIGNALED.union(SendFlags::INLINE)
    } else {
        SendFlags::SIGNALED
    }
}
