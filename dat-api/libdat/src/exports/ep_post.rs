//! Posting to endpoints. Nothing here allocates, locks, prints or unwinds, unless
//! the post is refused and `DAT_DBG_TYPE` asks for the cause.

use dat_api::handle::peek_at;
use dat_api::object::ep::Ep;
use dat_api::types::CompletionFlags;

use crate::abi::{
    DAT_COMPLETION_FLAGS, DAT_COUNT, DAT_DTO_COOKIE, DAT_EP_HANDLE, DAT_LMR_TRIPLET, DAT_RETURN,
    DAT_RMR_TRIPLET,
};
use crate::face::refused::{no_remote_segment, no_segments_on_ep};
use crate::face::segments::{local, remote};
use crate::providers::hot;
use crate::version::Codes;

#[unsafe(export_name = symbol!("dat_ep_post_send"))]
pub unsafe extern "C" fn dat_ep_post_send(
    ep_handle: DAT_EP_HANDLE,
    num_segments: DAT_COUNT,
    local_iov: *mut DAT_LMR_TRIPLET,
    user_cookie: DAT_DTO_COOKIE,
    completion_flags: DAT_COMPLETION_FLAGS,
) -> DAT_RETURN {
    // SAFETY: by the contract of `exports` no thread frees the endpoint during
    // the call.
    let Some(ep) = (unsafe { peek_at::<Ep>(ep_handle) }) else {
        // SAFETY: the caller has the same contract.
        return unsafe {
            hot::post_send(
                ep_handle,
                num_segments,
                local_iov,
                user_cookie,
                completion_flags,
            )
        };
    };
    let flags = CompletionFlags::from_bits_retain(completion_flags);
    // SAFETY: by the contract of `exports` one thread at a time posts, and the
    // memory and the segment list stay valid; any 64 bits are a cookie.
    unsafe {
        let Some((count, segment)) = local(num_segments, local_iov) else {
            return no_segments_on_ep(ep, num_segments, "dat_ep_post_send");
        };
        ep.post_send_with::<Codes>(count, segment, user_cookie.as_64, flags)
            .bits()
    }
}

#[unsafe(export_name = symbol!("dat_ep_post_recv"))]
pub unsafe extern "C" fn dat_ep_post_recv(
    ep_handle: DAT_EP_HANDLE,
    num_segments: DAT_COUNT,
    local_iov: *mut DAT_LMR_TRIPLET,
    user_cookie: DAT_DTO_COOKIE,
    completion_flags: DAT_COMPLETION_FLAGS,
) -> DAT_RETURN {
    // SAFETY: as in `dat_ep_post_send`.
    let Some(ep) = (unsafe { peek_at::<Ep>(ep_handle) }) else {
        // SAFETY: the caller has the same contract.
        return unsafe {
            hot::post_recv(
                ep_handle,
                num_segments,
                local_iov,
                user_cookie,
                completion_flags,
            )
        };
    };
    let flags = CompletionFlags::from_bits_retain(completion_flags);
    // SAFETY: as in `dat_ep_post_send`.
    unsafe {
        let Some((count, segment)) = local(num_segments, local_iov) else {
            return no_segments_on_ep(ep, num_segments, "dat_ep_post_recv");
        };
        ep.post_recv_with::<Codes>(count, segment, user_cookie.as_64, flags)
            .bits()
    }
}

#[unsafe(export_name = symbol!("dat_ep_post_rdma_read"))]
pub unsafe extern "C" fn dat_ep_post_rdma_read(
    ep_handle: DAT_EP_HANDLE,
    num_segments: DAT_COUNT,
    local_iov: *mut DAT_LMR_TRIPLET,
    user_cookie: DAT_DTO_COOKIE,
    remote_iov: *const DAT_RMR_TRIPLET,
    completion_flags: DAT_COMPLETION_FLAGS,
) -> DAT_RETURN {
    // SAFETY: as in `dat_ep_post_send`.
    let Some(ep) = (unsafe { peek_at::<Ep>(ep_handle) }) else {
        // SAFETY: the caller has the same contract.
        return unsafe {
            hot::post_rdma_read(
                ep_handle,
                num_segments,
                local_iov,
                user_cookie,
                remote_iov,
                completion_flags,
            )
        };
    };
    let flags = CompletionFlags::from_bits_retain(completion_flags);
    // SAFETY: as in `dat_ep_post_send`; the remote segment is null or readable.
    unsafe {
        let Some((count, segment)) = local(num_segments, local_iov) else {
            return no_segments_on_ep(ep, num_segments, "dat_ep_post_rdma_read");
        };
        let Some(remote) = remote(remote_iov) else {
            return no_remote_segment(ep, "dat_ep_post_rdma_read");
        };
        ep.post_rdma_read_with::<Codes>(count, segment, user_cookie.as_64, remote, flags)
            .bits()
    }
}

#[unsafe(export_name = symbol!("dat_ep_post_rdma_write"))]
pub unsafe extern "C" fn dat_ep_post_rdma_write(
    ep_handle: DAT_EP_HANDLE,
    num_segments: DAT_COUNT,
    local_iov: *mut DAT_LMR_TRIPLET,
    user_cookie: DAT_DTO_COOKIE,
    remote_iov: *const DAT_RMR_TRIPLET,
    completion_flags: DAT_COMPLETION_FLAGS,
) -> DAT_RETURN {
    // SAFETY: as in `dat_ep_post_send`.
    let Some(ep) = (unsafe { peek_at::<Ep>(ep_handle) }) else {
        // SAFETY: the caller has the same contract.
        return unsafe {
            hot::post_rdma_write(
                ep_handle,
                num_segments,
                local_iov,
                user_cookie,
                remote_iov,
                completion_flags,
            )
        };
    };
    let flags = CompletionFlags::from_bits_retain(completion_flags);
    // SAFETY: as in `dat_ep_post_send`; the remote segment is null or readable.
    unsafe {
        let Some((count, segment)) = local(num_segments, local_iov) else {
            return no_segments_on_ep(ep, num_segments, "dat_ep_post_rdma_write");
        };
        let Some(remote) = remote(remote_iov) else {
            return no_remote_segment(ep, "dat_ep_post_rdma_write");
        };
        ep.post_rdma_write_with::<Codes>(count, segment, user_cookie.as_64, remote, flags)
            .bits()
    }
}
