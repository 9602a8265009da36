//! Posting the operations of InfiniBand and RoCE that DAT 1.2 does not have: RDMA writes with
//! immediate data, and atomic operations.

use super::Ep;
use super::request::Request;
use crate::object::post::count_of;
use crate::status::{DatReturn, OwnCodes, ReturnCodes};
use crate::types::{AtomicOp, CompletionFlags, LmrSegment, RmrSegment};

impl Ep {
    /// Posts an RDMA write as [`Self::post_rdma_write_with`] does. It also takes a receive of the
    /// peer, whose event has `immediate`; the memory of that receive stays untouched.
    ///
    /// The immediate data go to the peer in the byte order of this host.
    ///
    /// Returns a code as [`Self::post_rdma_write_with`]; `MODEL_NOT_SUPPORTED` on iWARP, which has no
    /// immediate data.
    ///
    /// # Safety
    /// As for [`Self::post_send_with`].
    #[inline(always)]
    pub unsafe fn post_rdma_write_immed_with<C: ReturnCodes>(
        &self,
        count: u32,
        segment: impl Fn(usize) -> LmrSegment,
        cookie: u64,
        remote: impl Fn() -> RmrSegment,
        immediate: u32,
        flags: CompletionFlags,
    ) -> DatReturn {
        let kind = move || Request::WriteImmed(remote(), immediate);
        // SAFETY: the caller's promise.
        unsafe { self.post_request::<C>(kind, count, segment, cookie, flags) }
    }

    /// As [`Self::post_rdma_write_immed_with`], for an array.
    ///
    /// # Errors
    /// As for [`Self::post_rdma_write_immed_with`].
    ///
    /// # Safety
    /// As for [`Self::post_send_with`].
    pub unsafe fn post_rdma_write_immed(
        &self,
        segments: &[LmrSegment],
        cookie: u64,
        remote: &RmrSegment,
        immediate: u32,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        let (remote, count) = (|| *remote, count_of(segments));
        let segment = |at| segments[at];
        // SAFETY: the caller's promise.
        unsafe {
            self.post_rdma_write_immed_with::<OwnCodes>(
                count, segment, cookie, remote, immediate, flags,
            )
        }
        .into_result()
    }

    /// Posts an operation on 64 bits of the peer's memory at `remote`, atomic among the operations of
    /// that device. The bits before it go to the first 8 bytes of the segment, in the order of the
    /// host. The length of `remote` is ignored, unless the IA is strict.
    ///
    /// Returns a code as [`Self::post_rdma_read_with`]; also `LENGTH_ERROR` if the segment has less
    /// than 8 bytes, `INVALID_PARAMETER` if the remote address is not a multiple of 8, and
    /// `MODEL_NOT_SUPPORTED` if the device has no atomic operations.
    ///
    /// # Safety
    /// As for [`Self::post_recv_with`].
    #[inline(always)]
    pub unsafe fn post_atomic_with<C: ReturnCodes>(
        &self,
        op: AtomicOp,
        segment: impl Fn(usize) -> LmrSegment,
        cookie: u64,
        remote: impl Fn() -> RmrSegment,
        flags: CompletionFlags,
    ) -> DatReturn {
        let kind = move || Request::Atomic(remote(), op);
        // SAFETY: the caller's promise.
        unsafe { self.post_slow::<C>(kind, segment, cookie, 1, flags) }
    }

    /// As [`Self::post_atomic_with`].
    ///
    /// # Errors
    /// As for [`Self::post_atomic_with`].
    ///
    /// # Safety
    /// As for [`Self::post_recv_with`].
    pub unsafe fn post_atomic(
        &self,
        op: AtomicOp,
        segment: LmrSegment,
        cookie: u64,
        remote: &RmrSegment,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        let (segment, remote) = (|_| segment, || *remote);
        // SAFETY: the caller's promise.
        unsafe { self.post_atomic_with::<OwnCodes>(op, segment, cookie, remote, flags) }
            .into_result()
    }
}
