//! Posting sends, RDMA writes and RDMA reads: fast and slow path (see [`crate::object::post`]).
//!
//! Decision: `docs/decisions/020-two-post-paths.md`

use core::mem::MaybeUninit;
use core::sync::atomic::Ordering;
use core::time::Duration;
use std::time::Instant;

use dat_engine::fast::FastPath;
use dat_engine::thread::CancellationDisabled;
use dat_engine::{PostError, SendRequest};

use super::Ep;
use super::request::{Request, signalled_flags};
use crate::object::ia::MAX_SEGMENTS;
use crate::object::post::{Entered, PostLock, count_of, for_mode, gather, is_single, no_zone};
use crate::status::{DatReturn, OwnCodes, ReturnCodes};
use crate::types::{CompletionFlags, EpState, LmrSegment, MemPrivileges, RmrSegment};

/// How long a request waits for an accepted connection.
const PATIENCE: Duration = Duration::from_secs(1);

impl Ep {
    /// Posts a send of `count` segments; `segment(i)` is the i-th, and `i` is below `count`. As the
    /// last statement of a function, the call compiles to a jump.
    ///
    /// Returns the code of section 3DAT, `dat_ep_post_send`, as `C` converts it: `INVALID_STATE`,
    /// `INVALID_PARAMETER`, `PROTECTION_VIOLATION`, `PRIVILEGES_VIOLATION`, `INSUFFICIENT_RESOURCES`.
    ///
    /// # Safety
    /// As for [`Self::post_recv_with`]; and memory that an LMR covers is mapped.
    #[inline(always)]
    pub unsafe fn post_send_with<C: ReturnCodes>(
        &self,
        count: u32,
        segment: impl Fn(usize) -> LmrSegment,
        cookie: u64,
        flags: CompletionFlags,
    ) -> DatReturn {
        // SAFETY: the caller's promise.
        unsafe { self.post_request::<C>(|| Request::Send, count, segment, cookie, flags) }
    }

    /// Posts an RDMA read from `remote` into `count` segments.
    ///
    /// The segments say how many bytes are read; on a strict IA `remote` does.
    ///
    /// Returns a code as [`Self::post_send_with`]; `LENGTH_ERROR` if more is read than the device
    /// reads at once; on a strict IA also if it is more than the endpoint's attributes allow, or the
    /// segments are shorter than `remote`; `INSUFFICIENT_RESOURCES` also if the peers have agreed on
    /// 0 reads.
    ///
    /// # Safety
    /// As for [`Self::post_recv_with`].
    #[inline(always)]
    pub unsafe fn post_rdma_read_with<C: ReturnCodes>(
        &self,
        count: u32,
        segment: impl Fn(usize) -> LmrSegment,
        cookie: u64,
        remote: impl Fn() -> RmrSegment,
        flags: CompletionFlags,
    ) -> DatReturn {
        let kind = move || Request::Read(remote());
        // SAFETY: the caller's promise.
        unsafe { self.post_request::<C>(kind, count, segment, cookie, flags) }
    }

    /// Posts an RDMA write of `count` segments to `remote`.
    ///
    /// The length of `remote` is ignored, unless the IA is strict.
    ///
    /// Returns a code as [`Self::post_send_with`]; `LENGTH_ERROR` if more is written than the device
    /// writes at once; on a strict IA also if it is more than the endpoint's attributes allow, or
    /// `remote` is shorter than the segments.
    ///
    /// # Safety
    /// As for [`Self::post_send_with`].
    #[inline(always)]
    pub unsafe fn post_rdma_write_with<C: ReturnCodes>(
        &self,
        count: u32,
        segment: impl Fn(usize) -> LmrSegment,
        cookie: u64,
        remote: impl Fn() -> RmrSegment,
        flags: CompletionFlags,
    ) -> DatReturn {
        let kind = move || Request::Write(remote());
        // SAFETY: the caller's promise.
        unsafe { self.post_request::<C>(kind, count, segment, cookie, flags) }
    }

    /// Posts a request. `kind` is called where the kind is needed, and always returns the same
    /// variant.
    ///
    /// # Safety
    /// As for [`Self::post_send_with`].
    #[inline(always)]
    pub(super) unsafe fn post_request<C: ReturnCodes>(
        &self,
        kind: impl Fn() -> Request,
        count: u32,
        segment: impl Fn(usize) -> LmrSegment,
        cookie: u64,
        flags: CompletionFlags,
    ) -> DatReturn {
        // SAFETY: the caller's promise.
        unsafe {
            if !is_single(count, flags) {
                // As in `post_recv`.
                core::hint::cold_path();
                return self.post_slow::<C>(kind, segment, cookie, count, flags);
            }
            for_mode!(self.posting.mode(), <P, L> self.post_fast::<C, P, L>(kind, segment, cookie))
        }
    }

    /// The fast path: one segment, no flags, connected. `extern "C"` functions do not unwind, so
    /// that the C interface's functions can jump to it.
    ///
    /// # Safety
    /// As for [`Self::post_send_with`]; `L` is a lock if posts take one.
    #[inline(never)]
    #[allow(improper_ctypes_definitions, reason = "only Rust calls it")]
    unsafe extern "C" fn post_fast<C: ReturnCodes, P: FastPath, L: PostLock>(
        &self,
        kind: impl Fn() -> Request,
        segment: impl Fn(usize) -> LmrSegment,
        cookie: u64,
    ) -> DatReturn {
        if self.is_connected()
            // SAFETY: the caller's promise.
            && let Some(entered) = unsafe { self.posting.try_enter::<L>() }
        {
            let poster = entered.poster;
            let one = segment(0);
            if poster.fast.of(kind()).allows(one.length)
                && let Some(op) = self.fast_op(kind())
                && let Some(segment) = poster.lmr_cache_for(kind()).find(one)
            {
                let segments = [segment];
                let request = SendRequest {
                    wr_id: cookie,
                    op,
                    flags: signalled_flags(kind(), one.length, poster.inline),
                    segments: &segments,
                };
                let wr_data = one.length as u32;
                // SAFETY: the caller's promise. The limit is not `NONE`, and only queue pairs of
                // one path have limits.
                if unsafe { P::try_post_send(poster.fast_qp(), &request, wr_data) } {
                    poster.unsignalled = 0;
                    return DatReturn::SUCCESS;
                }
            }
        }
        // SAFETY: the caller's promise.
        unsafe { self.post_slow::<C>(kind, segment, cookie, 1, CompletionFlags::empty()) }
    }

    /// The slow path: any request. Its first arguments are those of the fast path, so that they are
    /// in the same registers.
    ///
    /// # Safety
    /// As for [`Self::post_send_with`].
    #[cold]
    #[inline(never)]
    #[allow(improper_ctypes_definitions, reason = "only Rust calls it")]
    pub(super) unsafe extern "C" fn post_slow<C: ReturnCodes>(
        &self,
        kind: impl Fn() -> Request,
        segment: impl Fn(usize) -> LmrSegment,
        cookie: u64,
        count: u32,
        flags: CompletionFlags,
    ) -> DatReturn {
        let kind_of = kind;
        let kind = kind_of();
        let mut places = [const { MaybeUninit::uninit() }; MAX_SEGMENTS];
        let mut is_second_try = false;
        if self.state() == EpState::CompletionPending {
            self.await_established();
        }
        // As for receives.
        let code = loop {
            // SAFETY: the caller's promise.
            let Entered { poster, guard } = unsafe { self.posting.lock() };
            let state = self.state.load(Ordering::Acquire);
            if let Err(code) = poster.check_post(kind, count, flags, state) {
                break code;
            }
            let need = match kind.fills_segments() {
                false => MemPrivileges::LOCAL_READ,
                true => MemPrivileges::LOCAL_WRITE,
            };
            let (zone, lmr_cache) = (poster.zone, poster.lmr_cache_for(kind));
            let gathered = match gather(&mut places, count, &segment, lmr_cache, zone, need) {
                Ok(gathered) => gathered,
                Err(code) => break code,
            };
            let (op, segments, length) = match self.op(poster, kind, gathered, state) {
                Ok(checked) => checked,
                Err(code) => break code,
            };
            let encoded = self.encode(poster, kind, flags, length);
            let request = SendRequest {
                wr_id: cookie,
                op,
                flags: encoded.flags,
                segments,
            };
            let Some(qp) = &mut poster.qp else {
                break no_zone();
            };
            // SAFETY: the caller's promise.
            let Err(error) = (unsafe { qp.post_send_with_data(&request, encoded.wr_data) }) else {
                poster.unsignalled = encoded.unsignalled;
                return DatReturn::SUCCESS;
            };
            // Making room takes other locks.
            drop(guard);
            // SAFETY: the caller's promise.
            if is_second_try || !unsafe { self.make_request_room(error) } {
                break self.refuse(error);
            }
            is_second_try = true;
        };
        // SAFETY: the caller's promise.
        C::convert(unsafe { self.report_refused(kind_of, count, segment, flags, code) })
    }

    /// Reports the cause of a refused request; returns the code. The functions are passed by value,
    /// so that neither they nor the kind need a place in memory before.
    ///
    /// # Safety
    /// As for [`Self::post_send_with`].
    #[cold]
    #[inline(never)]
    unsafe fn report_refused(
        &self,
        kind: impl Fn() -> Request,
        count: u32,
        segment: impl Fn(usize) -> LmrSegment,
        flags: CompletionFlags,
        code: DatReturn,
    ) -> DatReturn {
        // SAFETY: the caller's promise.
        unsafe { self.report_request(kind(), count, &segment, flags, code) }
    }

    /// Makes room after the engine has refused a request or a bind. Returns whether to try again.
    ///
    /// # Safety
    /// As for [`Self::post_recv_with`].
    #[cold]
    pub(crate) unsafe fn make_request_room(&self, error: PostError) -> bool {
        match error {
            PostError::QueueFull => {
                self.poll_suppressed();
                true
            }
            PostError::NotReady => {
                // SAFETY: the caller's promise.
                let entered = unsafe { self.posting.lock() };
                let qp = entered.poster.qp.as_mut();
                qp.is_some_and(|qp| qp.open_sends())
            }
            _ => false,
        }
    }

    /// Waits up to a second until an accepted connection is established. The peer may have sent or
    /// written already, and a program that polls its memory posts its answer before the thread of
    /// the connection manager has had a processor.
    #[cold]
    #[inline(never)]
    fn await_established(&self) {
        if self.ia.is_strict() {
            return;
        }
        // A post is no cancellation point, but a sleep is.
        let _held = CancellationDisabled::new();
        let begin = Instant::now();
        while self.state() == EpState::CompletionPending && begin.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    #[inline(always)]
    pub(super) fn is_connected(&self) -> bool {
        self.state.load(Ordering::Acquire) == EpState::Connected as u32
    }

    /// As [`Self::post_send_with`], for an array.
    ///
    /// # Errors
    /// As for [`Self::post_send_with`].
    ///
    /// # Safety
    /// As for [`Self::post_send_with`].
    #[inline]
    pub unsafe fn post_send(
        &self,
        segments: &[LmrSegment],
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        // SAFETY: the caller's promise.
        unsafe {
            self.post_send_with::<OwnCodes>(count_of(segments), |at| segments[at], cookie, flags)
        }
        .into_result()
    }

    /// As [`Self::post_rdma_read_with`], for an array.
    ///
    /// # Errors
    /// As for [`Self::post_rdma_read_with`].
    ///
    /// # Safety
    /// As for [`Self::post_rdma_read_with`].
    #[inline]
    pub unsafe fn post_rdma_read(
        &self,
        segments: &[LmrSegment],
        cookie: u64,
        remote: &RmrSegment,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        let remote = || *remote;
        // SAFETY: the caller's promise.
        unsafe {
            self.post_rdma_read_with::<OwnCodes>(
                count_of(segments),
                |at| segments[at],
                cookie,
                remote,
                flags,
            )
        }
        .into_result()
    }

    /// As [`Self::post_rdma_write_with`], for an array.
    ///
    /// # Errors
    /// As for [`Self::post_rdma_write_with`].
    ///
    /// # Safety
    /// As for [`Self::post_rdma_write_with`].
    #[inline]
    pub unsafe fn post_rdma_write(
        &self,
        segments: &[LmrSegment],
        cookie: u64,
        remote: &RmrSegment,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        let remote = || *remote;
        // SAFETY: the caller's promise.
        unsafe {
            self.post_rdma_write_with::<OwnCodes>(
                count_of(segments),
                |at| segments[at],
                cookie,
                remote,
                flags,
            )
        }
        .into_result()
    }
}
