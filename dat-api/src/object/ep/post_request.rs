//! Posting requests: fast and slow path (see [`crate::object::post`]).
//!
//! Decision: `docs/decisions/020-two-post-paths.md`

use core::mem::MaybeUninit;
use core::sync::atomic::Ordering;
use core::time::Duration;
use std::time::Instant;

use dat_engine::thread::CancellationDisabled;
use dat_engine::{PostError, Segment, SendRequest};

use super::Ep;
use super::kind::Kind;
use super::request::signalled_flags;
use crate::object::ia::MAX_SEGMENTS;
use crate::object::post::{Entered, count_of, gather};
use crate::refusal::Refusal;
use crate::status::{DatReturn, OwnCodes, ReturnCodes};
use crate::types::{CompletionFlags, EpState, LmrSegment, MemPrivileges};

/// How long a request waits for an accepted connection.
const PATIENCE: Duration = Duration::from_secs(1);

impl Ep {
    /// Posts a request of `count` segments; `segment(i)` is the i-th, and `i` is below `count`. As the
    /// last statement of a function, the call compiles to a jump.
    ///
    /// Returns the code of section 3DAT, `dat_ep_post_send`, as `C` converts it: `INVALID_STATE`,
    /// `INVALID_PARAMETER`, `PROTECTION_VIOLATION`, `PRIVILEGES_VIOLATION`, `INSUFFICIENT_RESOURCES`;
    /// and those of the kind.
    ///
    /// # Safety
    /// As for [`Self::post_recv_with`]; and memory that an LMR covers is mapped.
    #[inline(always)]
    pub unsafe fn post_with<C: ReturnCodes>(
        &self,
        kind: impl Kind,
        count: u32,
        segment: impl Fn(usize) -> LmrSegment,
        cookie: u64,
        flags: CompletionFlags,
    ) -> DatReturn {
        // SAFETY: the caller's promise.
        unsafe {
            // One segment and no flags, by one comparison.
            match (count ^ 1) | flags.bits() == 0 {
                true => self.post_fast::<C>(kind, segment, cookie),
                false => self.post_slow::<C>(kind, segment, cookie, count, flags),
            }
        }
    }

    /// As [`Self::post_with`], for an array.
    ///
    /// # Errors
    /// As for [`Self::post_with`].
    ///
    /// # Safety
    /// As for [`Self::post_with`].
    #[inline]
    pub unsafe fn post(
        &self,
        kind: impl Kind,
        segments: &[LmrSegment],
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        let (count, segment) = (count_of(segments), |at| segments[at]);
        // SAFETY: the caller's promise.
        unsafe { self.post_with::<OwnCodes>(kind, count, segment, cookie, flags) }.into_result()
    }

    /// The fast path: one segment, no flags, connected. `extern "C"` functions do not unwind, so
    /// that the C interface's functions can jump to it.
    ///
    /// # Safety
    /// As for [`Self::post_with`].
    #[inline(never)]
    #[allow(improper_ctypes_definitions, reason = "only Rust calls it")]
    unsafe extern "C" fn post_fast<C: ReturnCodes>(
        &self,
        kind: impl Kind,
        segment: impl Fn(usize) -> LmrSegment,
        cookie: u64,
    ) -> DatReturn {
        if self.is_connected()
            // SAFETY: the caller's promise.
            && let Some(entered) = unsafe { self.posting.try_enter() }
        {
            let poster = entered.poster;
            let one = segment(0);
            if poster.fast.of(kind.request()).allows(one.length)
                && let Some(bytes) = self.fast_bytes(kind.request(), one.length)
                && let Some(segment) = poster.lmr_cache_for(kind.request()).find(one)
            {
                let request = SendRequest {
                    wr_id: cookie,
                    op: kind.request().op(),
                    flags: signalled_flags(kind.request(), one.length, poster.inline),
                    segments: &[Segment {
                        length: bytes,
                        ..segment
                    }],
                };
                // SAFETY: the caller's promise. The limit is not `NONE`.
                if unsafe { poster.fast_qp().try_post_send(&request, bytes) } {
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
    /// As for [`Self::post_with`].
    #[cold]
    #[inline(never)]
    #[allow(improper_ctypes_definitions, reason = "only Rust calls it")]
    unsafe extern "C" fn post_slow<C: ReturnCodes>(
        &self,
        kind: impl Kind,
        segment: impl Fn(usize) -> LmrSegment,
        cookie: u64,
        count: u32,
        flags: CompletionFlags,
    ) -> DatReturn {
        let kind = kind.request();
        let mut places = [const { MaybeUninit::uninit() }; MAX_SEGMENTS];
        let mut is_second_try = false;
        if self.state() == EpState::CompletionPending {
            self.await_established();
        }
        // As for receives.
        let refusal = loop {
            // SAFETY: the caller's promise.
            let Entered { poster, guard } = unsafe { self.posting.lock() };
            let state = self.state.load(Ordering::Acquire);
            if let Err(refusal) = poster.check_post(kind, count, flags, state) {
                break refusal;
            }
            let need = match kind.fills_segments() {
                false => MemPrivileges::LOCAL_READ,
                true => MemPrivileges::LOCAL_WRITE,
            };
            let (zone, lmr_cache) = (poster.zone, poster.lmr_cache_for(kind));
            let gathered = match gather(&mut places, count, &segment, lmr_cache, zone, need) {
                Ok(gathered) => gathered,
                Err(refusal) => break refusal,
            };
            let (segments, length) = match self.check_memory(poster, kind, gathered, state) {
                Ok(checked) => checked,
                Err(refusal) => break refusal,
            };
            let encoded = self.encode(poster, kind, flags, length);
            let request = SendRequest {
                wr_id: cookie,
                op: kind.op(),
                flags: encoded.flags,
                segments,
            };
            let Some(qp) = &mut poster.qp else {
                break Refusal::NoZone;
            };
            // SAFETY: the caller's promise.
            let Err(error) = (unsafe { qp.post_send_with_data(&request, encoded.wr_data) }) else {
                poster.unsignalled = encoded.unsignalled;
                return DatReturn::SUCCESS;
            };
            let refusal = poster.request_refusal(error, "requests");
            // Making room takes other locks.
            drop(guard);
            // SAFETY: the caller's promise.
            if is_second_try || !unsafe { self.make_request_room(error) } {
                self.refused.note(error);
                break refusal;
            }
            is_second_try = true;
        };
        C::refuse(kind.call(), self.handle, refusal)
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
}
