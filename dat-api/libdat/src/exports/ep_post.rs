//! Posting to endpoints. Nothing here allocates, locks, prints or unwinds, unless
//! the post is refused and `DAT_DBG_TYPE` asks for the cause.

use dat_api::handle::peek_at;
use dat_api::object::ep::{Ep, kind};
use dat_api::types::CompletionFlags;

use crate::abi::{
    DAT_COMPLETION_FLAGS, DAT_COUNT, DAT_DTO_COOKIE, DAT_EP_HANDLE, DAT_LMR_TRIPLET, DAT_RETURN,
    DAT_RMR_TRIPLET,
};
use crate::face::refused::{Codes, no_remote_segment, no_segments};
use crate::face::segments::{local, remote};
use crate::providers::hot;

/// Defines a call that posts to an endpoint: `$post` with the names that it declares. A remote
/// segment is named where the call has one.
macro_rules! post {
    ($function:ident, $call:literal, $elsewhere:ident,
     |$ep:ident, $count:ident, $segment:ident, $cookie:ident, $flags:ident $(, $remote:ident)?|
     $post:expr) => {
        #[unsafe(export_name = symbol!($call))]
        pub unsafe extern "C" fn $function(
            ep_handle: DAT_EP_HANDLE,
            num_segments: DAT_COUNT,
            local_iov: *mut DAT_LMR_TRIPLET,
            user_cookie: DAT_DTO_COOKIE,
            $($remote: *const DAT_RMR_TRIPLET,)?
            completion_flags: DAT_COMPLETION_FLAGS,
        ) -> DAT_RETURN {
            // SAFETY: by the contract of `exports` no thread frees the endpoint during the call.
            let Some($ep) = (unsafe { peek_at::<Ep>(ep_handle) }) else {
                // SAFETY: the caller has the same contract.
                return unsafe {
                    hot::$elsewhere(
                        ep_handle,
                        num_segments,
                        local_iov,
                        user_cookie,
                        $($remote,)?
                        completion_flags,
                    )
                };
            };
            let $flags = CompletionFlags::from_bits_retain(completion_flags);
            // SAFETY: by the contract of `exports` one thread at a time posts, and the memory and
            // the segment list stay valid; the remote segment is null or readable; any 64 bits are
            // a cookie.
            unsafe {
                let $cookie = user_cookie.as_64;
                let Some(($count, $segment)) = local(num_segments, local_iov) else {
                    return no_segments($ep.handle(), num_segments, $call);
                };
                $(let Some($remote) = remote($remote) else {
                    return no_remote_segment($ep.handle(), $call);
                };)?
                $post.bits()
            }
        }
    };
}

post!(
    dat_ep_post_send,
    "dat_ep_post_send",
    post_send,
    |ep, count, segment, cookie, flags| ep.post_with::<Codes>(
        kind::Send,
        count,
        segment,
        cookie,
        flags
    )
);
post!(
    dat_ep_post_recv,
    "dat_ep_post_recv",
    post_recv,
    |ep, count, segment, cookie, flags| ep.post_recv_with::<Codes>(count, segment, cookie, flags)
);
post!(
    dat_ep_post_rdma_read,
    "dat_ep_post_rdma_read",
    post_rdma_read,
    |ep, count, segment, cookie, flags, remote_iov| ep.post_with::<Codes>(
        kind::Read(remote_iov),
        count,
        segment,
        cookie,
        flags
    )
);
post!(
    dat_ep_post_rdma_write,
    "dat_ep_post_rdma_write",
    post_rdma_write,
    |ep, count, segment, cookie, flags, remote_iov| ep.post_with::<Codes>(
        kind::Write(remote_iov),
        count,
        segment,
        cookie,
        flags
    )
);
