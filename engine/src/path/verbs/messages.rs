//! Lists of messages of one segment each, as the fast path posts them: converted to
//! requests in chunks, of which each is one call of libibverbs.

use core::slice;

use super::chain::CHUNK;
use super::device::{Device, Refused};
use super::queue_pair::QueuePair;
use super::shared::SharedReceives;
use crate::request::{Message, RecvRequest, SendFlags, SendOp, SendRequest};

impl<D: Device> QueuePair<D> {
    /// Posts receives of a list; `message` returns a message of it, and `None` ends the list.
    /// Returns how many are posted.
    ///
    /// # Safety
    /// As for [`Self::post_recv`], for every message.
    #[inline(never)]
    pub unsafe fn try_post_recv_messages<T>(
        &mut self,
        list: &[T],
        message: impl Fn(&T) -> Option<Message>,
    ) -> usize {
        in_chunks(list, message, |chunk| {
            let requests = requests_of(chunk, receive);
            // SAFETY: required of the caller.
            unsafe { self.post_recvs(&requests[..chunk.len()]) }
        })
    }

    /// Posts signalled sends of a list, those of up to `inline` bytes inline. The `wr_data` of
    /// each is its length. Otherwise as [`Self::try_post_recv_messages`].
    ///
    /// # Safety
    /// As for [`Self::post_send_list`], for every message.
    #[inline(never)]
    pub unsafe fn try_post_send_messages<T>(
        &mut self,
        list: &[T],
        message: impl Fn(&T) -> Option<Message>,
        inline: u32,
    ) -> usize {
        in_chunks(list, message, |chunk| {
            let requests = requests_of(chunk, |message| send(message, inline));
            // SAFETY: required of the caller.
            unsafe { self.post_sends(&requests[..chunk.len()], |length| length) }
        })
    }
}

impl<D: Device> SharedReceives<D> {
    /// As [`QueuePair::try_post_recv_messages`].
    ///
    /// # Safety
    /// As for [`Self::post`], for every message.
    #[inline(never)]
    pub unsafe fn try_post_messages<T>(
        &mut self,
        list: &[T],
        message: impl Fn(&T) -> Option<Message>,
    ) -> usize {
        in_chunks(list, message, |chunk| {
            let requests = requests_of(chunk, receive);
            // SAFETY: required of the caller.
            unsafe { self.post_chunk::<CHUNK>(&requests[..chunk.len()]) }
        })
    }
}

/// Posts messages of a list in chunks of up to [`CHUNK`]. Returns how many are posted.
#[inline(always)]
fn in_chunks<T>(
    list: &[T],
    message: impl Fn(&T) -> Option<Message>,
    mut post: impl FnMut(&[Message]) -> Result<(), Refused>,
) -> usize {
    let mut posted = 0;
    // Fused: after the first that is refused, none is looked at.
    let mut messages = list.iter().map_while(message).fuse();
    loop {
        let mut chunk = [Message::default(); CHUNK];
        let mut filled = 0;
        for (place, message) in chunk.iter_mut().zip(&mut messages) {
            *place = message;
            filled += 1;
        }
        if filled == 0 {
            return posted;
        }
        match post(&chunk[..filled]) {
            Ok(()) => posted += filled,
            Err(refused) => return posted + refused.taken,
        }
    }
}

/// Returns the requests of a chunk, and after them more of its last one.
#[inline(always)]
fn requests_of<'a, R>(chunk: &'a [Message], request: impl Fn(&'a Message) -> R) -> [R; CHUNK] {
    core::array::from_fn(|at| request(&chunk[at.min(chunk.len() - 1)]))
}

#[inline(always)]
fn receive(message: &Message) -> RecvRequest<'_> {
    RecvRequest {
        wr_id: message.wr_id,
        segments: slice::from_ref(&message.segment),
    }
}

#[inline(always)]
fn send(message: &Message, inline: u32) -> SendRequest<'_> {
    SendRequest {
        wr_id: message.wr_id,
        op: SendOp::Send,
        flags: match message.segment.length <= inline {
            true => SendFlags::SIGNALED | SendFlags::INLINE,
            false => SendFlags::SIGNALED,
        },
        segments: slice::from_ref(&message.segment),
    }
}
