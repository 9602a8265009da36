//! The kinds of requests, as [`super::Ep::post`] takes them. Each is a type, so that the fast path is
//! compiled for each of them alone.
//!
//! A remote segment is given as a function that returns it: it is read where it is needed, which
//! takes fewer registers.
//!
//! Decision: `docs/decisions/020-two-post-paths.md`

use dat_engine::SendOp;

use crate::object::post::immediate_order;
use crate::types::{AtomicMacro, AtomicOp, RmrSegment};

/// The kind of a request, with what it has besides the local segments.
pub trait Kind: Copy {
    /// Returns the request, of the same variant for all values of the type.
    fn request(self) -> Request;
}

/// A function that returns the remote segment.
pub trait Remote: Fn() -> RmrSegment + Copy {}
impl<F: Fn() -> RmrSegment + Copy> Remote for F {}

/// A send.
#[derive(Clone, Copy, Debug)]
pub struct Send;

/// An RDMA read from the remote segment into the local ones.
///
/// The local segments say how many bytes are read; on a strict IA the remote one does. Refused with
/// `LENGTH_ERROR` if more is read than the device reads at once; on a strict IA also if it is more
/// than the endpoint's attributes allow, or the local segments are shorter than the remote one.
/// `INSUFFICIENT_RESOURCES` also if the peers have agreed on 0 reads.
#[derive(Clone, Copy, Debug)]
pub struct Read<R>(pub R);

/// An RDMA write to the remote segment.
///
/// The length of the remote segment is ignored, unless the IA is strict. Refused with `LENGTH_ERROR`
/// if more is written than the device writes at once; on a strict IA also if it is more than the
/// endpoint's attributes allow, or the remote segment is shorter than the local ones.
#[derive(Clone, Copy, Debug)]
pub struct Write<R>(pub R);

/// An RDMA write as [`Write`], with immediate data, which go to the peer in the byte order of this
/// host. It also takes a receive of the peer, whose event has the immediate data; the memory of that
/// receive stays untouched.
///
/// Refused with `MODEL_NOT_SUPPORTED` on iWARP, which has no immediate data.
#[derive(Clone, Copy, Debug)]
pub struct WriteImmed<R>(pub R, pub u32);

/// An atomic operation, which the second function returns, on 64 bits of the peer's memory at the
/// remote segment; atomic among the operations of that device. The bits before it go to the first 8
/// bytes of the one local segment, in the order of the host. The length of the remote segment is
/// ignored, unless the IA is strict.
///
/// Refused as [`Read`]; also with `LENGTH_ERROR` if the local segment has less than 8 bytes,
/// `INVALID_PARAMETER` if the remote address is not a multiple of 8, and `MODEL_NOT_SUPPORTED` if the
/// device has no atomic operations.
#[derive(Clone, Copy, Debug)]
pub struct Atomic<R, O>(pub R, pub O);

impl Kind for Send {
    #[inline(always)]
    fn request(self) -> Request {
        Request::Send
    }
}

impl<R: Remote> Kind for Read<R> {
    #[inline(always)]
    fn request(self) -> Request {
        Request::Read(self.0())
    }
}

impl<R: Remote> Kind for Write<R> {
    #[inline(always)]
    fn request(self) -> Request {
        Request::Write(self.0())
    }
}

impl<R: Remote> Kind for WriteImmed<R> {
    #[inline(always)]
    fn request(self) -> Request {
        Request::WriteImmed(self.0(), self.1)
    }
}

impl<R: Remote, O: Fn() -> AtomicOp + Copy> Kind for Atomic<R, O> {
    #[inline(always)]
    fn request(self) -> Request {
        Request::Atomic(self.0(), self.1())
    }
}

/// A request, without its local segments. The representation is that of [`SendOp`].
#[repr(u32)]
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
            Self::Atomic(_, op) => AtomicMacro::of(op).name,
        }
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
            Self::Atomic(remote, op) => {
                let (remote_addr, rkey) = of(remote);
                SendOp::Atomic {
                    remote_addr,
                    rkey,
                    op,
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
