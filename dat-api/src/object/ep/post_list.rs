//! Posting lists of sends.

use super::Ep;
use super::kind;
use crate::object::post::Longest;
use crate::object::post::list::{ListError, Listed, fast_message, post_list};
use crate::status::OwnCodes;
use crate::types::CompletionFlags;

impl Ep {
    /// Posts a list of sends without flags; `listed` returns what one of them consists of.
    ///
    /// # Errors
    /// A send was refused, with the code of [`Self::post_with`].
    ///
    /// # Safety
    /// As for [`Self::post_with`], for every send.
    #[inline(always)]
    pub(crate) unsafe fn post_send_list<T>(
        &self,
        sends: &[T],
        listed: impl Fn(&T) -> Listed,
    ) -> Result<(), ListError> {
        // SAFETY: the caller's promise.
        let run = |rest: &[T]| unsafe { self.post_run(rest, &listed) };
        let one = |send: &T| {
            let (segment, cookie) = listed(send);
            let flags = CompletionFlags::empty();
            // SAFETY: the caller's promise.
            unsafe { self.post_with::<OwnCodes>(kind::Send, 1, |_| segment, cookie, flags) }
        };
        post_list(sends, run, one)
    }

    /// Posts sends from the front of a list, as far as they are like those of the fast path. Returns
    /// how many.
    ///
    /// # Safety
    /// As for [`Self::post_send_list`].
    #[inline(never)]
    unsafe fn post_run<T>(&self, sends: &[T], listed: &impl Fn(&T) -> Listed) -> usize {
        if !self.is_connected() {
            return 0;
        }
        // SAFETY: the caller's promise.
        let Some(entered) = (unsafe { self.posting.try_enter() }) else {
            return 0;
        };
        let poster = entered.poster;
        let longest = poster.fast.send_list;
        if longest == Longest::NONE {
            return 0;
        }
        let inline = u32::try_from(poster.inline).unwrap_or(u32::MAX);
        let cache = poster.lmr_caches.read;
        let message = |send: &T| fast_message(listed(send), longest, &cache);
        // SAFETY: the limit is not `NONE`. The caller's promise.
        let posted = unsafe { poster.fast_qp().try_post_sends(sends, message, inline) };
        if posted != 0 {
            poster.unsignalled = 0;
        }
        posted
    }
}
