//! Posting and taking events through another provider. These functions are
//! outlined so that this library's own fast path saves no registers for them.

use dat_api::{Kind, Subtype};

use super::dispatch::{foreign, foreign_wait};
use crate::abi::{
    DAT_COMPLETION_FLAGS, DAT_COUNT, DAT_DTO_COOKIE, DAT_EP_HANDLE, DAT_EVD_HANDLE, DAT_EVENT,
    DAT_LMR_TRIPLET, DAT_RETURN, DAT_RMR_TRIPLET, DAT_SRQ_HANDLE, DAT_TIMEOUT,
};
use crate::face::refused::{bad_handle, not_owned};

/// Refuses a handle that belongs to no provider.
fn bad_ep(call: &'static str, handle: DAT_EP_HANDLE) -> DAT_RETURN {
    bad_handle(call, Kind::Ep, Subtype::InvalidHandleEp, handle)
}

macro_rules! elsewhere {
    ($name:ident, $slot:ident, $bad:expr,
     $handle:ident: $kind:ty, $($argument:ident: $type:ty),* $(; $more:ident: $other:ty)?) => {
        /// Forwards the call of this name, with a handle that is not of this
        /// library.
        ///
        /// # Safety
        /// The contract of `exports`.
        #[cold]
        #[inline(never)]
        pub(crate) unsafe extern "C" fn $name(
            $handle: $kind,
            $($argument: $type,)*
            $($more: $other,)?
        ) -> DAT_RETURN {
            foreign!($handle.$slot($handle, $($argument),*));
            $bad
        }
    };
}

elsewhere!(post_send, ep_post_send_func, bad_ep("dat_ep_post_send", ep), ep: DAT_EP_HANDLE,
    count: DAT_COUNT, segments: *mut DAT_LMR_TRIPLET, cookie: DAT_DTO_COOKIE,
    flags: DAT_COMPLETION_FLAGS);
elsewhere!(post_recv, ep_post_recv_func, bad_ep("dat_ep_post_recv", ep), ep: DAT_EP_HANDLE,
    count: DAT_COUNT, segments: *mut DAT_LMR_TRIPLET, cookie: DAT_DTO_COOKIE,
    flags: DAT_COMPLETION_FLAGS);
elsewhere!(post_rdma_read, ep_post_rdma_read_func, bad_ep("dat_ep_post_rdma_read", ep), ep: DAT_EP_HANDLE,
    count: DAT_COUNT, segments: *mut DAT_LMR_TRIPLET, cookie: DAT_DTO_COOKIE,
    remote: *const DAT_RMR_TRIPLET, flags: DAT_COMPLETION_FLAGS);
elsewhere!(post_rdma_write, ep_post_rdma_write_func, bad_ep("dat_ep_post_rdma_write", ep), ep: DAT_EP_HANDLE,
    count: DAT_COUNT, segments: *mut DAT_LMR_TRIPLET, cookie: DAT_DTO_COOKIE,
    remote: *const DAT_RMR_TRIPLET, flags: DAT_COMPLETION_FLAGS);
elsewhere!(srq_post_recv, srq_post_recv_func,
    bad_handle("dat_srq_post_recv", Kind::Srq, Subtype::InvalidHandleSrq, srq), srq: DAT_SRQ_HANDLE,
    count: DAT_COUNT, segments: *mut DAT_LMR_TRIPLET, cookie: DAT_DTO_COOKIE);
elsewhere!(dequeue, evd_dequeue_func, not_owned("dat_evd_dequeue", evd, or), evd: DAT_EVD_HANDLE,
    event: *mut DAT_EVENT; or: DAT_RETURN);

/// Forwards [`dat_evd_wait`](crate::exports::dat_evd_wait) with a handle that is
/// not of this library. Holds nothing that needs a drop.
///
/// # Safety
/// The contract of `exports`.
#[cold]
#[inline(never)]
pub(crate) unsafe extern "C-unwind" fn wait(
    evd: DAT_EVD_HANDLE,
    timeout: DAT_TIMEOUT,
    threshold: DAT_COUNT,
    event: *mut DAT_EVENT,
    nmore: *mut DAT_COUNT,
    or: DAT_RETURN,
) -> DAT_RETURN {
    foreign_wait!(evd.evd_wait_func(evd, timeout, threshold, event, nmore));
    not_owned("dat_evd_wait", evd, or)
}
