//! Posts. Nothing here allocates, locks, prints or unwinds, unless the post is refused and
//! `DAT_DBG_TYPE` asks for the cause.

use dat_api::handle::{Object, unpinned_at};
use dat_api::object::ep::{Ep, kind};
use dat_api::object::srq::Srq;
use dat_api::types::CompletionFlags;

use crate::abi::*;
use crate::face::refused::{Codes, bad_handle, no_remote_segment, no_segments};
use crate::face::segments::{local, remote};
use crate::providers::dispatch::foreign;

/// Defines a call that posts to an object: `$post` with the names that it declares. Flags and a
/// remote segment are named where the call has them.
macro_rules! post {
    ($name:ident, $object:ty,
     |$queue:ident, $count:ident, $segment:ident, $cookie:ident
      $(, $flags:ident $(, $remote:ident)?)?| $post:expr) => {
        #[unsafe(export_name = symbol!($name))]
        pub unsafe extern "C" fn $name(
            handle: DAT_HANDLE,
            num_segments: DAT_COUNT,
            local_iov: *mut DAT_LMR_TRIPLET,
            user_cookie: DAT_DTO_COOKIE,
            $($($remote: *const DAT_RMR_TRIPLET,)?
            $flags: DAT_COMPLETION_FLAGS,)?
        ) -> DAT_RETURN {
            /// The call with a handle that is not of this library: outlined, so that the post
            /// saves no registers for it.
            #[cold]
            #[inline(never)]
            unsafe extern "C" fn elsewhere(
                handle: DAT_HANDLE,
                num_segments: DAT_COUNT,
                local_iov: *mut DAT_LMR_TRIPLET,
                user_cookie: DAT_DTO_COOKIE,
                $($($remote: *const DAT_RMR_TRIPLET,)?
                $flags: DAT_COMPLETION_FLAGS,)?
            ) -> DAT_RETURN {
                foreign!($name(
                    handle, num_segments, local_iov, user_cookie $(, $($remote,)? $flags)?
                ));
                bad_handle(stringify!($name), <$object>::KIND, handle)
            }
            // SAFETY: by the contract of `exports` no thread frees the object during the call.
            let Some($queue) = (unsafe { unpinned_at::<$object>(handle) }) else {
                // SAFETY: the arguments are those of the call.
                return unsafe {
                    elsewhere(
                        handle, num_segments, local_iov, user_cookie $(, $($remote,)? $flags)?
                    )
                };
            };
            $(let $flags = CompletionFlags::from_bits_retain($flags);)?
            // SAFETY: by the contract of `exports` one thread at a time posts, and the memory and
            // the segment list stay valid; the remote segment is null or readable; any 64 bits are
            // a cookie.
            unsafe {
                let $cookie = user_cookie.as_64;
                let Some(($count, $segment)) = local(num_segments, local_iov) else {
                    return no_segments($queue.handle(), num_segments, stringify!($name));
                };
                $($(let Some($remote) = remote($remote) else {
                    return no_remote_segment($queue.handle(), stringify!($name));
                };)?)?
                $post.bits()
            }
        }
    };
}

post!(dat_ep_post_send, Ep, |ep, count, segment, cookie, flags| {
    ep.post_with::<Codes>(kind::Send, count, segment, cookie, flags)
});
post!(dat_ep_post_recv, Ep, |ep, count, segment, cookie, flags| {
    ep.post_recv_with::<Codes>(count, segment, cookie, flags)
});
post!(
    dat_ep_post_rdma_read,
    Ep,
    |ep, count, segment, cookie, flags, remote_iov| {
        ep.post_with::<Codes>(kind::Read(remote_iov), count, segment, cookie, flags)
    }
);
post!(
    dat_ep_post_rdma_write,
    Ep,
    |ep, count, segment, cookie, flags, remote_iov| {
        ep.post_with::<Codes>(kind::Write(remote_iov), count, segment, cookie, flags)
    }
);
post!(dat_srq_post_recv, Srq, |srq, count, segment, cookie| {
    srq.post_recv_with::<Codes>(count, segment, cookie)
});
