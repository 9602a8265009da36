//! Requests: their operation, the checks of the slow path, and how completion flags are encoded in
//! the ring.
//!
//! | flag | in the ring |
//! | --- | --- |
//! | none | signalled |
//! | SUPPRESS | not signalled; at intervals signalled, so that the ring does not fill up, and that completion produces no event |
//! | UNSIGNALLED | signalled; the work-request data says that the event wakes no waiter |
//! | BARRIER_FENCE | fence |
//! | SOLICITED_WAIT | solicited |
//!
//! Decision: `docs/decisions/061-allow-what-the-reference-allows.md`

use core::sync::atomic::Ordering;

use dat_engine::{ATOMIC_BYTES, Segment, SendFlags, SendOp};

use super::Ep;
use super::poster::Poster;
use crate::object::lmr::LmrCache;
use crate::object::post::{first_bytes, immediate_order};
use crate::object::wr_data::{NO_EVENT, UNSIGNALLED};
use crate::refusal::Refusal;
use crate::state::Call;
use crate::status::Subtype;
use crate::types::{AtomicOp, CompletionFlags, EpState, RmrSegment};

/// The states in which requests are accepted.
const POSTABLE: crate::state::States = Call::PostRequest.legal();

/// The bytes of an atomic operation.
pub(super) const ATOMIC: u64 = ATOMIC_BYTES as u64;

/// A request, without its local segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// A send.
    Send,
    /// A read.
    Read(RmrSegment),
    /// A write.
    Write(RmrSegment),
    /// A write with immediate data.
    WriteImmed(RmrSegment, u32),
    /// An atomic operation.
    Atomic(RmrSegment, AtomicOp),
}

impl Request {
    /// Returns the name of the call in C; of the extensions, that of the header's macro.
    pub(super) fn call(self) -> &'static str {
        match self {
            Self::Send => "dat_ep_post_send",
            Self::Read(_) => "dat_ep_post_rdma_read",
            Self::Write(_) => "dat_ep_post_rdma_write",
            Self::WriteImmed(..) => "dat_ib_post_rdma_write_immed",
            Self::Atomic(_, AtomicOp::FetchAdd(_)) => "dat_ib_post_fetch_and_add",
            Self::Atomic(_, AtomicOp::CompareSwap { .. }) => "dat_ib_post_cmp_and_swap",
        }
    }

    /// Refuses a remote address that atomic operations cannot use. The code names the argument of
    /// the header's macro.
    #[cold]
    fn unaligned(self, address: u64) -> Refusal {
        let argument = match self {
            Self::Atomic(_, AtomicOp::CompareSwap { .. }) => Subtype::InvalidArg6,
            _ => Subtype::InvalidArg5,
        };
        Refusal::Unaligned { address, argument }
    }

    /// Returns the operation for the engine.
    #[inline(always)]
    pub(super) fn op(self) -> SendOp {
        let of = |remote: RmrSegment| (remote.address, remote.context);
        match self {
            Self::Send => SendOp::Send,
            Self::Read(remote) => {
                let (remote_addr, rkey) = of(remote);
                SendOp::Read { remote_addr, rkey }
            }
            Self::Write(remote) => {
                let (remote_addr, rkey) = of(remote);
                SendOp::Write { remote_addr, rkey }
            }
            Self::WriteImmed(remote, immediate) => {
                let ((remote_addr, rkey), imm) = (of(remote), immediate_order(immediate));
                SendOp::WriteImm {
                    remote_addr,
                    rkey,
                    imm,
                }
            }
            Self::Atomic(remote, AtomicOp::FetchAdd(add)) => {
                let (remote_addr, rkey) = of(remote);
                SendOp::FetchAdd {
                    remote_addr,
                    rkey,
                    add,
                }
            }
            Self::Atomic(remote, AtomicOp::CompareSwap { compare, swap }) => {
                let (remote_addr, rkey) = of(remote);
                SendOp::CompareSwap {
                    remote_addr,
                    rkey,
                    compare,
                    swap,
                }
            }
        }
    }

    /// Returns whether it writes to the local segments instead of reading them.
    #[inline(always)]
    pub(super) fn fills_segments(self) -> bool {
        match self {
            Self::Send | Self::Write(_) | Self::WriteImmed(..) => false,
            Self::Read(_) | Self::Atomic(..) => true,
        }
    }
}

/// The encoding of a request's completion flags.
pub(super) struct Encoded {
    pub(super) flags: SendFlags,
    pub(super) wr_data: u32,
    /// The number of consecutive unsignalled requests, including this one.
    pub(super) unsignalled: u32,
}

impl Ep {
    /// Returns how many bytes a request of a segment of this length transfers. `None` if it is a read
    /// or an atomic operation and none were agreed on, or an atomic operation on memory that is too
    /// short or unaligned.
    #[inline(always)]
    pub(super) fn fast_bytes(&self, kind: Request, length: u64) -> Option<u32> {
        if kind.fills_segments() && self.reads_issued.load(Ordering::Relaxed) == 0 {
            return None;
        }
        match kind {
            Request::Atomic(remote, _) => {
                let fits = length >= ATOMIC && remote.address.is_multiple_of(ATOMIC);
                fits.then_some(ATOMIC_BYTES)
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
    pub(super) fn check_memory<'a>(
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
            Request::Atomic(remote, _) => {
                if !self.ia.attributes().atomics {
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
                    return Err(kind.unaligned(remote.address));
                }
                (first_bytes(segments, ATOMIC), ATOMIC)
            }
            _ => (segments, length),
        };
        match kind {
            Request::Read(_) | Request::Atomic(..) => self.require_reads(state)?,
            Request::WriteImmed(..) if !self.ia.attributes().immediate_data => {
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
        match self.ia.attributes().max_rdma_read_per_ep_out {
            0 => Refusal::ReadsUnsupported,
            _ => Refusal::NoReads,
        }
    }

    /// Encodes the flags of a request by the table above.
    #[inline(always)]
    pub(super) fn encode(
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

impl Poster {
    /// Checks a request except for its segments.
    ///
    /// # Errors
    /// The state, the flags or the number of segments is not accepted.
    #[inline(always)]
    pub(super) fn check_post(
        &self,
        kind: Request,
        count: u32,
        flags: CompletionFlags,
        state: u32,
    ) -> Result<(), Refusal> {
        let (most, attribute, allowed) = match kind {
            Request::Send => (self.max_request_iov, "max_request_iov", self.send_flags),
            Request::Read(_) => (self.max_read_iov, "max_rdma_read_iov", self.rdma_flags),
            Request::Write(_) => (self.max_write_iov, "max_rdma_write_iov", self.rdma_flags),
            // It takes a receive of the peer, as a send does.
            Request::WriteImmed(..) => (self.max_write_iov, "max_rdma_write_iov", self.send_flags),
            Request::Atomic(..) => (1, "number of segments", self.rdma_flags),
        };
        if state != EpState::Connected as u32 && !POSTABLE.has(super::state_of(state)) {
            return Err(Refusal::State {
                state: super::state_of(state),
                what: "requests",
            });
        }
        if !allowed.contains(flags) {
            return Err(Refusal::Flags { flags, allowed });
        }
        if count > most {
            return Err(Refusal::TooManySegments {
                count,
                most,
                attribute,
                owner: "endpoint",
            });
        }
        Ok(())
    }

    /// Returns the LMR cache for such a request.
    #[inline(always)]
    pub(super) fn lmr_cache_for(&mut self, kind: Request) -> &mut LmrCache {
        match kind.fills_segments() {
            false => &mut self.lmr_caches.read,
            true => &mut self.lmr_caches.write,
        }
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
pub(super) fn signalled_flags(kind: Request, length: u64, inline: u64) -> SendFlags {
    if length <= inline && !kind.fills_segments() {
        SendFlags::SIGNALED.union(SendFlags::INLINE)
    } else {
        SendFlags::SIGNALED
    }
}
