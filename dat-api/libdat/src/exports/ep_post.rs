//! Posting to endpoints: nothing here allocates, locks, prints or unwinds.

use dat_api::object::ep::Ep;
use dat_api::types::CompletionFlags;
use dat_api::{DatReturn, ReturnType, Subtype};

use crate::abi::{
    DAT_COMPLETION_FLAGS, DAT_COUNT, DAT_DTO_COOKIE, DAT_EP_HANDLE, DAT_LMR_TRIPLET, DAT_RETURN,
    DAT_RMR_TRIPLET,
};
use crate::face::handles::{invalid, peek};
use crate::face::segments::{Segments, remote};

/// Why a post does not even reach its queue.
pub(super) const BAD_EP: DAT_RETURN = invalid(Subtype::InvalidHandleEp).bits();
pub(super) const NO_SEGMENTS: DAT_RETURN =
    DatReturn::error(ReturnType::InvalidParameter, Subtype::InvalidArg3).bits();
const NO_REMOTE: DAT_RETURN =
    DatReturn::error(ReturnType::InvalidParameter, Subtype::InvalidArg5).bits();

/// The 32 bits of a post's answer.
#[inline(always)]
pub(super) fn answer(result: Result<(), DatReturn>) -> DAT_RETURN {
    match result {
        Ok(()) => DatReturn::SUCCESS.bits(),
        Err(code) => code.bits(),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn dat_ep_post_send(
    ep_handle: DAT_EP_HANDLE,
    num_segments: DAT_COUNT,
    local_iov: *mut DAT_LMR_TRIPLET,
    user_cookie: DAT_DTO_COOKIE,
    completion_flags: DAT_COMPLETION_FLAGS,
) -> DAT_RETURN {
    // SAFETY: the contract of `exports`: nobody frees it meanwhile.
    let Some(ep) = (unsafe { peek::<Ep>(ep_handle) }) else {
        return BAD_EP;
    };
    // SAFETY: the contract: an array of so many.
    let Some(segments) = (unsafe { Segments::new(num_segments, local_iov) }) else {
        return NO_SEGMENTS;
    };
    // SAFETY: one thread at a time posts to it, and keeps the memory, by the
    // contract; the poster asks for segments below the count; any 64 bits are
    // a cookie.
    answer(unsafe {
        ep.post_send_with(
            segments.count(),
            |index| segments.get(index),
            user_cookie.as_64,
            CompletionFlags::from_bits_retain(completion_flags),
        )
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn dat_ep_post_recv(
    ep_handle: DAT_EP_HANDLE,
    num_segments: DAT_COUNT,
    local_iov: *mut DAT_LMR_TRIPLET,
    user_cookie: DAT_DTO_COOKIE,
    completion_flags: DAT_COMPLETION_FLAGS,
) -> DAT_RETURN {
    // SAFETY: as in `dat_ep_post_send`.
    let Some(ep) = (unsafe { peek::<Ep>(ep_handle) }) else {
        return BAD_EP;
    };
    // SAFETY: the same.
    let Some(segments) = (unsafe { Segments::new(num_segments, local_iov) }) else {
        return NO_SEGMENTS;
    };
    // SAFETY: the same.
    answer(unsafe {
        ep.post_recv_with(
            segments.count(),
            |index| segments.get(index),
            user_cookie.as_64,
            CompletionFlags::from_bits_retain(completion_flags),
        )
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn dat_ep_post_rdma_read(
    ep_handle: DAT_EP_HANDLE,
    num_segments: DAT_COUNT,
    local_iov: *mut DAT_LMR_TRIPLET,
    user_cookie: DAT_DTO_COOKIE,
    remote_iov: *const DAT_RMR_TRIPLET,
    completion_flags: DAT_COMPLETION_FLAGS,
) -> DAT_RETURN {
    // SAFETY: as in `dat_ep_post_send`.
    let Some(ep) = (unsafe { peek::<Ep>(ep_handle) }) else {
        return BAD_EP;
    };
    // SAFETY: the same.
    let Some(segments) = (unsafe { Segments::new(num_segments, local_iov) }) else {
        return NO_SEGMENTS;
    };
    // SAFETY: null or readable, by the contract.
    let Some(remote) = (unsafe { remote(remote_iov) }) else {
        return NO_REMOTE;
    };
    // SAFETY: as in `dat_ep_post_send`.
    answer(unsafe {
        ep.post_rdma_read_with(
            segments.count(),
            |index| segments.get(index),
            user_cookie.as_64,
            &remote,
            CompletionFlags::from_bits_retain(completion_flags),
        )
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn dat_ep_post_rdma_write(
    ep_handle: DAT_EP_HANDLE,
    num_segments: DAT_COUNT,
    local_iov: *mut DAT_LMR_TRIPLET,
    user_cookie: DAT_DTO_COOKIE,
    remote_iov: *const DAT_RMR_TRIPLET,
    completion_flags: DAT_COMPLETION_FLAGS,
) -> DAT_RETURN {
    // SAFETY: as in `dat_ep_post_send`.
    let Some(ep) = (unsafe { peek::<Ep>(ep_handle) }) else {
        return BAD_EP;
    };
    // SAFETY: the same.
    let Some(segments) = (unsafe { Segments::new(num_segments, local_iov) }) else {
        return NO_SEGMENTS;
    };
    // SAFETY: null or readable, by the contract.
    let Some(remote) = (unsafe { remote(remote_iov) }) else {
        return NO_REMOTE;
    };
    // SAFETY: as in `dat_ep_post_send`.
    answer(unsafe {
        ep.post_rdma_write_with(
            segments.count(),
            |index| segments.get(index),
            user_cookie.as_64,
            &remote,
            CompletionFlags::from_bits_retain(completion_flags),
        )
    })
}
