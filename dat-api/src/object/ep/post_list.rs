//! Posting lists of sends.

use dat_engine::fast::FastPath;

use super::Ep;
use super::request::Request;
use crate::object::post::list::{ListError, Listed, fast_message, post_list};
use crate::object::post::{Longest, PostLock, for_mode};
use crate::status::OwnCodes;
use crate::types::CompletionFlags;

impl Ep {
    /// Posts a list of sends without flags; `listed` returns what one of them consists of.
    ///
    /// # Errors
    /// A send was refused, with the code of [`Self::post_send_with`].
    ///
    /// # Safety
    /// As for [`Self::post_send_with`], for every send.
    #[inline(always)]
    pub(crate) unsafe fn post_send_list<T>(
        &self,
        sends: &[T],
        listed: impl Fn(&T) -> Listed,
    ) -> Result<(), ListError> {
        // SAFETY: the caller's promise.
        let run = |rest: &[T]| unsafe {
            for_mode!(self.posting.mode(), <P, L> self.post_sends_fast::<P, L, T>(rest, &listed))
        };
        let one = |send: &T| {
            let (segment, cookie) = listed(send);
            let flags = CompletionFlags::empty();
            // SAFETY: the caller's promise.
            unsafe { self.post_send_with::<OwnCodes>(1, |_| segment, cookie, flags) }
        };
        post_list(sends, run, one)
    }

    /// Posts sends from the front of a list, as far as the fast path takes them. Returns how many.
    ///
    /// # Safety
    /// As for [`Self::post_send_list`]; `L` is a lock if posts take one.
    #[inline(never)]
    unsafe fn post_sends_fast<P: FastPath, L: PostLock, T>(
        &self,
        sends: &[T],
        listed: &impl Fn(&T) -> Listed,
    ) -> usize {
        if !self.is_connected() {
            return 0;
        }
        // SAFETY: the caller's promise.
        let Some(entered) = (unsafe { self.posting.try_enter::<L>() }) else {
            return 0;
        };
        let poster = entered.poster;
        let longest = poster.fast.of(Request::Send);
        if longest == Longest::NONE {
            return 0;
        }
        let inline = u32::try_from(poster.inline).unwrap_or(u32::MAX);
        let cache = poster.lmr_caches.read;
        let message = |send: &T| fast_message(listed(send), longest, &cache);
        // SAFETY: the limit is not `NONE`, and only queue pairs of one path have limits. The
        // caller's promise.
        let posted = unsafe { P::try_post_sends(poster.fast_qp(), sends, message, inline) };
        if posted != 0 {
            poster.unsignalled = 0;
        }
        posted
    }
}
