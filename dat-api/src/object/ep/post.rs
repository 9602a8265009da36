//! Posting requests to an endpoint: fast and slow path (see [`crate::object::post`]), and
//! how completion flags are encoded in the ring.
//!
//! | flag | in the ring |
//! | --- | --- |
//! | none | signalled |
//! | SUPPRESS | not signalled; at intervals signalled, so that the ring does not fill up, and that completion produces no event |
//! | UNSIGNALLED | signalled; the work-request data says that the event wakes no waiter |
//! | BARRIER_FENCE | fence |
//! | SOLICITED_WAIT | solicited |
//!
//! Decisions:
//! - `docs/decisions/020-two-post-paths.md`
//! - `docs/decisions/061-allow-what-the-reference-allows.md`

use core::mem::MaybeUninit;
use core::sync::atomic::Ordering;
use core::time::Duration;
use std::time::Instant;

use dat_engine::thread::CancellationDisabled;
use dat_engine::{PostError, Segment, SendFlags, SendRequest};

use super::Ep;
use super::kind::{self, Kind, Request};
use super::poster::Poster;
use crate::object::ia::MAX_SEGMENTS;
use crate::object::post::list::{ListError, Listed, in_cached_lmr, post_list};
use crate::object::post::{Entered, Longest, count_of, first_bytes, gather};
use crate::object::wr_data::{NO_EVENT, UNSIGNALLED};
use crate::refusal::Refusal;
use crate::status::{DatReturn, OwnCodes, ReturnCodes};
use crate::types::{AtomicMacro, AtomicOp, CompletionFlags, EpState, LmrSegment, MemPrivileges};

/// The bytes of an atomic operation.
const ATOMIC: u64 = AtomicOp::BYTES as u64;

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
    /// No other post, no bind and no call that is `unsafe` for this reason runs on this endpoint at
    /// the same time, unless its IA is threadsafe. The memory of the segments is left alone until the
    /// request completes, or the endpoint is reset or freed; memory that an LMR covers is mapped.
    #[inline(always)]
    pub unsafe fn post_with<C: ReturnCodes>(
        &self,
        kind: impl Kind,
        count: u32,
        segment: impl Fn(usize) -> LmrSegment,
        cookie: u64,
        flags: CompletionFlags,
    ) -> DatReturn {
        // SAFETY: posts take turns, and the segments' memory stays until they complete.
        unsafe {
            // One segment and no flags, by one comparison.
            match (count ^ 1) | flags.bits() == 0 {
                true => self.post_fast::<false, C>(kind, segment, cookie),
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
        // SAFETY: posts take turns, and the segments' memory stays until they complete.
        unsafe { self.post_with::<OwnCodes>(kind, count, segment, cookie, flags) }.into_result()
    }

    /// The fast path, of one data path: one segment, no flags, connected. `extern "C"` functions do
    /// not unwind, so that the C interface's functions can jump to it.
    ///
    /// # Safety
    /// As for [`Self::post_with`].
    #[inline(never)]
    #[allow(improper_ctypes_definitions, reason = "only Rust calls it")]
    unsafe extern "C" fn post_fast<const BY_VERBS: bool, C: ReturnCodes>(
        &self,
        kind: impl Kind,
        segment: impl Fn(usize) -> LmrSegment,
        cookie: u64,
    ) -> DatReturn {
        if self.is_connected()
            // SAFETY: no post runs at the same time, unless posts take the lock.
            && let Some(entered) = unsafe { self.posting.try_enter() }
        {
            let poster = entered.poster;
            let one = segment(0);
            let limits = match BY_VERBS {
                false => &poster.direct_limits,
                true => &poster.limits,
            };
            if limits.of(kind.request()).allows(one.length)
                && let Some(bytes) = self.transferred(kind.request(), one.length)
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
                // SAFETY: posts take turns, and the segments' memory stays until they complete.
                // The limit is not `NONE`.
                let posted = unsafe {
                    let qp = poster.served_qp();
                    match BY_VERBS {
                        false => qp.try_post_send(&request, bytes),
                        true => qp.try_post_send_by_verbs(&request, bytes),
                    }
                };
                if posted {
                    poster.unsignalled = 0;
                    return DatReturn::SUCCESS;
                }
            }
        }
        // SAFETY: posts take turns, and the segments' memory stays until they complete.
        unsafe {
            match BY_VERBS {
                false => self.post_fast::<true, C>(kind, segment, cookie),
                true => self.post_slow::<C>(kind, segment, cookie, 1, CompletionFlags::empty()),
            }
        }
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
            // SAFETY: no post runs at the same time, unless posts take the lock.
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
            // SAFETY: the segments' memory stays until the requests complete.
            let Err(error) = (unsafe { qp.post_send_with_data(&request, encoded.wr_data) }) else {
                poster.unsignalled = encoded.unsignalled;
                return DatReturn::SUCCESS;
            };
            let refusal = poster.request_refusal(error, "requests");
            // Making room takes other locks.
            drop(guard);
            // SAFETY: no post runs at the same time, unless posts take the lock.
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
                // SAFETY: no post runs at the same time, unless posts take the lock.
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
        if !self.ia.rules().conformance.awaits_established {
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
    fn is_connected(&self) -> bool {
        self.state.load(Ordering::Acquire) == EpState::Connected as u32
    }
}

impl Ep {
    /// Posts a list of sends without flags; `listed` returns what one of them consists of.
    ///
    /// # Errors
    /// A send was refused, with the code of [`Self::post_with`].
    ///
    /// # Safety
    /// As for [`Self::post_with`], for every send.
    #[inline(always)]
    pub(crate) unsafe fn post_send_list<T>(
        &self,
        sends: &[T],
        listed: impl Fn(&T) -> Listed,
    ) -> Result<(), ListError> {
        // SAFETY: posts take turns, and the segments' memory stays until they complete.
        let run = |rest: &[T]| unsafe { self.post_run(rest, &listed) };
        let one = |send: &T| {
            let (segment, cookie) = listed(send);
            let flags = CompletionFlags::empty();
            // SAFETY: posts take turns, and the segments' memory stays until they complete.
            unsafe { self.post_with::<OwnCodes>(kind::Send, 1, |_| segment, cookie, flags) }
        };
        post_list(sends, run, one)
    }

    /// Posts sends from the front of a list, as far as they are like those of the fast path. Returns
    /// how many.
    ///
    /// # Safety
    /// As for [`Self::post_with`], for every send.
    #[inline(never)]
    unsafe fn post_run<T>(&self, sends: &[T], listed: &impl Fn(&T) -> Listed) -> usize {
        if !self.is_connected() {
            return 0;
        }
        // SAFETY: no post runs at the same time, unless posts take the lock.
        let Some(entered) = (unsafe { self.posting.try_enter() }) else {
            return 0;
        };
        let poster = entered.poster;
        let longest = poster.limits.send;
        if longest == Longest::NONE {
            return 0;
        }
        let inline = u32::try_from(poster.inline).unwrap_or(u32::MAX);
        let cache = poster.lmr_caches.read;
        let message = move |send: &T| in_cached_lmr(listed(send), longest, &cache);
        // SAFETY: the limit is not `NONE`. The caller's promise.
        let posted = unsafe { poster.served_qp().try_post_sends(sends, message, inline) };
        if posted != 0 {
            poster.unsignalled = 0;
        }
        posted
    }
}

/// The encoding of a request's completion flags.
struct Encoded {
    flags: SendFlags,
    wr_data: u32,
    /// The number of consecutive unsignalled requests, including this one.
    unsignalled: u32,
}

impl Ep {
    /// Returns how many bytes a request of a segment of this length transfers. `None` if it is a read
    /// or an atomic operation and none were agreed on, or an atomic operation on memory that is too
    /// short or unaligned.
    #[inline(always)]
    fn transferred(&self, kind: Request, length: u64) -> Option<u32> {
        if kind.fills_segments() && self.reads_issued.load(Ordering::Relaxed) == 0 {
            return None;
        }
        match kind {
            Request::Atomic(remote, _) => {
                let fits = length >= ATOMIC && remote.address.is_multiple_of(ATOMIC);
                fits.then_some(AtomicOp::BYTES)
            }
            _ => Some(length as u32),
        }
    }

    /// Returns the segments that take part in a request, and their length.
    ///
    /// # Errors
    /// The lengths do not go together (on a strict IA), are more than one request carries, or no
    /// reads were agreed on; the device does not have the operation; the memory of an atomic
    /// operation is too short or unaligned.
    #[inline(always)]
    fn check_memory<'a>(
        &self,
        poster: &Poster,
        kind: Request,
        (segments, length): (&'a mut [Segment], u64),
        state: u32,
    ) -> Result<(&'a mut [Segment], u64), Refusal> {
        let (segments, length) = match kind {
            Request::Read(remote) | Request::Write(remote) | Request::WriteImmed(remote, _)
                if poster.checks_remote =>
            {
                strict_part(kind, remote.length, (segments, length))?
            }
            Request::Atomic(remote, op) => {
                if !self.ia.rules().limits.atomics {
                    return Err(Refusal::AtomicsUnsupported);
                }
                for (what, length, counts) in [
                    ("local", length, true),
                    ("remote", remote.length, poster.checks_remote),
                ] {
                    if counts && length < ATOMIC {
                        return Err(Refusal::ShortAtomic { what, length });
                    }
                }
                if !remote.address.is_multiple_of(ATOMIC) {
                    return Err(Refusal::Unaligned {
                        address: remote.address,
                        argument: AtomicMacro::of(op).remote,
                    });
                }
                (first_bytes(segments, ATOMIC), ATOMIC)
            }
            _ => (segments, length),
        };
        match kind {
            Request::Read(_) | Request::Atomic(..) => self.require_reads(state)?,
            Request::WriteImmed(..) if !self.ia.rules().limits.immediate_data => {
                return Err(Refusal::ImmediateUnsupported);
            }
            _ => {}
        }
        match kind {
            Request::Send if length > poster.max_message => Err(Refusal::LongMessage {
                length,
                most: poster.max_message,
            }),
            Request::Read(_) | Request::Write(_) | Request::WriteImmed(..)
                if length > poster.max_rdma =>
            {
                Err(Refusal::LongTransfer {
                    length,
                    most: poster.max_rdma,
                })
            }
            _ => Ok((segments, length)),
        }
    }

    /// Refuses reads and atomic operations, which share resources, if the peers have agreed on none:
    /// the device would never complete them.
    ///
    /// # Errors
    /// As [`Self::no_reads`].
    #[inline(always)]
    fn require_reads(&self, state: u32) -> Result<(), Refusal> {
        if self.reads_issued.load(Ordering::Relaxed) == 0 && state == EpState::Connected as u32 {
            return Err(self.no_reads());
        }
        Ok(())
    }

    /// Returns why no RDMA read can be posted: the peers have agreed on 0, or the device supports
    /// none.
    #[cold]
    #[inline(never)]
    fn no_reads(&self) -> Refusal {
        match self.ia.rules().limits.max_rdma_read_per_ep_out {
            0 => Refusal::ReadsUnsupported,
            _ => Refusal::NoReads,
        }
    }

    /// Encodes the flags of a request by the table above.
    #[inline(always)]
    fn encode(
        &self,
        poster: &Poster,
        kind: Request,
        flags: CompletionFlags,
        length: u64,
    ) -> Encoded {
        let mut encoded = Encoded {
            flags: signalled_flags(kind, length, poster.inline),
            wr_data: length as u32,
            unsignalled: 0,
        };
        if flags.is_empty() {
            return encoded;
        }
        let has = |flag| flags.contains(flag);
        let how = &mut encoded.flags;
        how.set(SendFlags::SOLICITED, has(CompletionFlags::SOLICITED_WAIT));
        how.set(SendFlags::FENCE, has(CompletionFlags::BARRIER_FENCE));
        if has(CompletionFlags::BARRIER_FENCE) {
            // Inline data is copied now, before the reads that the request must wait for have
            // brought their data.
            *how -= SendFlags::INLINE;
        }
        if has(CompletionFlags::SUPPRESS) {
            if poster.unsignalled < poster.most_unsignalled {
                *how -= SendFlags::SIGNALED;
                encoded.unsignalled = poster.unsignalled + 1;
                return encoded;
            }
            encoded.wr_data = NO_EVENT;
        } else if has(CompletionFlags::UNSIGNALLED) {
            encoded.wr_data |= UNSIGNALLED;
        }
        if encoded.wr_data & UNSIGNALLED != 0 {
            self.inspect_completions();
        }
        encoded
    }
}

/// Returns the part of the local segments that takes part in an RDMA transfer if the length of the
/// remote segment counts: a read transfers as many bytes as the remote segment has, a write as many
/// as the local ones.
///
/// # Errors
/// The transfer does not fit the segments that it goes to.
#[cold]
fn strict_part(
    kind: Request,
    remote: u64,
    (segments, length): (&mut [Segment], u64),
) -> Result<(&mut [Segment], u64), Refusal> {
    let local = length;
    match kind {
        Request::Read(_) if remote > local => Err(Refusal::LongRead { remote, local }),
        Request::Read(_) if remote < local => Ok((first_bytes(segments, remote), remote)),
        Request::Write(_) | Request::WriteImmed(..) if remote < local => {
            Err(Refusal::LongWrite { remote, local })
        }
        _ => Ok((segments, local)),
    }
}

/// Returns the flags of a signalled request; short ones are posted inline.
#[inline(always)]
fn signalled_flags(kind: Request, length: u64, inline: u64) -> SendFlags {
    if length <= inline && !kind.fills_segments() {
        SendFlags::SIGNALED.union(SendFlags::INLINE)
    } else {
        SendFlags::SIGNALED
    }
}
