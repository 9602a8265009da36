//! Why a post to an endpoint was refused, in words ([`crate::refusals`]).

use core::sync::atomic::Ordering;

use super::Ep;
use super::request::{ATOMIC, Request};
use crate::object::post::{RefusedPost, changed, full_queue, of_state};
use crate::refusals;
use crate::status::{DatReturn, ReturnType, Subtype};
use crate::types::{AtomicOp, CompletionFlags, LmrSegment, MemPrivileges};

/// The limits of posts, copied from the poster.
struct Limits {
    zone: usize,
    max_recv_iov: u32,
    max_request_iov: u32,
    max_read_iov: u32,
    max_write_iov: u32,
    max_message: u64,
    max_rdma: u64,
    send_flags: CompletionFlags,
    rdma_flags: CompletionFlags,
    recv_flags: CompletionFlags,
}

impl Ep {
    /// # Safety
    /// As for [`Self::post_recv_with`].
    unsafe fn limits(&self) -> Limits {
        // SAFETY: the caller's promise.
        let entered = unsafe { self.posting.lock() };
        let poster = &*entered.poster;
        Limits {
            zone: poster.zone,
            max_recv_iov: poster.max_recv_iov,
            max_request_iov: poster.max_request_iov,
            max_read_iov: poster.max_read_iov,
            max_write_iov: poster.max_write_iov,
            max_message: poster.max_message,
            max_rdma: poster.max_rdma,
            send_flags: poster.send_flags,
            rdma_flags: poster.rdma_flags,
            recv_flags: poster.recv_flags,
        }
    }

    /// Reports the cause of a refused receive; returns the code.
    ///
    /// # Safety
    /// As for [`Self::post_recv_with`].
    #[cold]
    #[inline(never)]
    pub(super) unsafe fn report_recv(
        &self,
        count: u32,
        segment: &dyn Fn(usize) -> LmrSegment,
        flags: CompletionFlags,
        code: DatReturn,
    ) -> DatReturn {
        let cause = || {
            // SAFETY: the caller's promise.
            let limits = unsafe { self.limits() };
            let info = self.query();
            if code.subtype() == Some(Subtype::InvalidStateSrqInUse) {
                return format!(
                    "the endpoint takes its receives from SRQ {:#x}: post them there, with \
                     dat_srq_post_recv",
                    info.srq.map_or(0, |srq| srq.bits())
                );
            }
            if code.is(ReturnType::InsufficientResources) {
                return full_queue(
                    "receive queue",
                    "max_recv_dtos",
                    info.attributes.max_recv_dtos.into(),
                    "take completions from the receive EVD before posting more",
                );
            }
            let post = RefusedPost {
                owner: "endpoint",
                count,
                segment,
                flags,
                allowed: limits.recv_flags,
                most_segments: ("max_recv_iov", limits.max_recv_iov),
                zone: limits.zone,
                need: MemPrivileges::LOCAL_WRITE,
            };
            of_state(code, "receives")
                .or_else(|| post.cause(code))
                .unwrap_or_else(|| changed("endpoint"))
        };
        refusals::report(("dat_ep_post_recv", "ep"), self.handle, code, cause);
        code
    }

    /// Reports the cause of a refused request; returns the code.
    ///
    /// # Safety
    /// As for [`Self::post_recv_with`].
    #[cold]
    #[inline(never)]
    pub(super) unsafe fn report_request(
        &self,
        kind: Request,
        count: u32,
        segment: &dyn Fn(usize) -> LmrSegment,
        flags: CompletionFlags,
        code: DatReturn,
    ) -> DatReturn {
        let call = match kind {
            Request::Send => "dat_ep_post_send",
            Request::Read(_) => "dat_ep_post_rdma_read",
            Request::Write(_) => "dat_ep_post_rdma_write",
            // The macros of the header.
            Request::WriteImmed(..) => "dat_ib_post_rdma_write_immed",
            Request::Atomic(_, AtomicOp::FetchAdd(_)) => "dat_ib_post_fetch_and_add",
            Request::Atomic(_, AtomicOp::CompareSwap { .. }) => "dat_ib_post_cmp_and_swap",
        };
        let cause = || {
            // SAFETY: the caller's promise.
            let limits = unsafe { self.limits() };
            let (allowed, most_segments, need) = match kind {
                Request::Send => (
                    limits.send_flags,
                    ("max_request_iov", limits.max_request_iov),
                    MemPrivileges::LOCAL_READ,
                ),
                Request::Read(_) => (
                    limits.rdma_flags,
                    ("max_rdma_read_iov", limits.max_read_iov),
                    MemPrivileges::LOCAL_WRITE,
                ),
                Request::Write(_) => (
                    limits.rdma_flags,
                    ("max_rdma_write_iov", limits.max_write_iov),
                    MemPrivileges::LOCAL_READ,
                ),
                Request::WriteImmed(..) => (
                    limits.send_flags,
                    ("max_rdma_write_iov", limits.max_write_iov),
                    MemPrivileges::LOCAL_READ,
                ),
                Request::Atomic(..) => (
                    limits.rdma_flags,
                    ("number of segments", 1),
                    MemPrivileges::LOCAL_WRITE,
                ),
            };
            let post = RefusedPost {
                owner: "endpoint",
                count,
                segment,
                flags,
                allowed,
                most_segments,
                zone: limits.zone,
                need,
            };
            of_state(code, "requests")
                .or_else(|| post.cause(code))
                .or_else(|| of_length(code, kind, post.length(), &limits))
                .or_else(|| of_alignment(code, kind))
                .or_else(|| self.of_room(code, kind))
                .unwrap_or_else(|| changed("endpoint"))
        };
        refusals::report((call, "ep"), self.handle, code, cause);
        code
    }

    /// Returns the cause if the queue is full, or the connection allows no reads.
    fn of_room(&self, code: DatReturn, kind: Request) -> Option<String> {
        if code.is(ReturnType::ModelNotSupported) {
            let attributes = self.ia.attributes();
            let is_atomic = matches!(kind, Request::Atomic(..));
            let cause = match kind {
                Request::WriteImmed(..) => {
                    "the device carries no immediate data, because it is iWARP: send them in a \
                     message after the RDMA write"
                }
                _ if is_atomic && !attributes.atomics => {
                    "the device has no atomic operations (its atomic_cap is none): let the peer \
                     change its memory"
                }
                _ => {
                    "the device supports no RDMA reads (max_rdma_read_per_ep_out is 0), and no \
                     atomic operations: use sends or RDMA writes"
                }
            };
            return Some(cause.into());
        }
        if !code.is(ReturnType::InsufficientResources) {
            return None;
        }
        let has_reads = self.reads_issued.load(Ordering::Relaxed) != 0;
        let needs_reads = kind.fills_segments();
        if needs_reads && !has_reads {
            return Some(
                "0 RDMA reads or atomic operations may be outstanding on this connection, the lower of \
                 max_rdma_read_out here and max_rdma_read_in of the peer's endpoint: set both to 1 \
                 or more before connecting"
                    .into(),
            );
        }
        Some(self.full_requests())
    }

    fn full_requests(&self) -> String {
        full_queue(
            "request queue",
            "max_request_dtos",
            self.query().attributes.max_request_dtos.into(),
            "take completions from the request EVD before posting more",
        )
    }
}

/// Returns the cause if lengths do not go together, or a message is too long.
fn of_length(code: DatReturn, kind: Request, local: u64, limits: &Limits) -> Option<String> {
    let is_long = code.is(ReturnType::InvalidParameter)
        && code.subtype() == Some(Subtype::InvalidArg3)
        && matches!(kind, Request::Send);
    if is_long {
        let most = limits.max_message;
        return (local > most).then(|| {
            format!(
                "the message has {local} bytes: expected at most {most}, the max_message_size of \
                 the endpoint; split it, or create the endpoint with more"
            )
        });
    }
    if !code.is(ReturnType::LengthError) {
        return None;
    }
    let (bytes, mismatch) = match kind {
        Request::Send => return None,
        Request::Read(remote) => (
            remote.length,
            (remote.length > local).then(|| {
                format!(
                    "the remote segment has {} bytes, the local segments have {local}: expected \
                     local segments that take the whole remote one",
                    remote.length
                )
            }),
        ),
        Request::Atomic(remote, _) => {
            let (what, bytes) = match local < ATOMIC {
                true => ("local", local),
                false => ("remote", remote.length),
            };
            return (bytes < ATOMIC).then(|| {
                format!(
                    "the {what} segment has {bytes} bytes: an atomic operation needs {ATOMIC} bytes"
                )
            });
        }
        Request::Write(remote) | Request::WriteImmed(remote, _) => (
            local,
            (remote.length < local).then(|| {
                format!(
                    "the local segments have {local} bytes, the remote segment has {}: expected a \
                     remote segment that takes all of them",
                    remote.length
                )
            }),
        ),
    };
    mismatch.or_else(|| {
        let most = limits.max_rdma;
        (bytes > most).then(|| {
            format!(
                "the transfer has {bytes} bytes: expected at most {most}, the max_rdma_size of the \
                 endpoint; split it, or create the endpoint with more"
            )
        })
    })
}

/// Returns the cause if atomic operations cannot use the remote address.
fn of_alignment(code: DatReturn, kind: Request) -> Option<String> {
    let Request::Atomic(remote, _) = kind else {
        return None;
    };
    let is_bad = code.is(ReturnType::InvalidParameter) && !remote.address.is_multiple_of(ATOMIC);
    is_bad.then(|| {
        format!(
            "the remote address {:#x} is not a multiple of {ATOMIC}: atomic operations need aligned \
             memory",
            remote.address
        )
    })
}
