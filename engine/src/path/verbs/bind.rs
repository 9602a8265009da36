//! Posting binds of memory windows through libibverbs.
//!
//! `ibv_bind_mw` posts to the same send queue as `ibv_post_send`, and increments
//! the window's key as the direct path does. It cannot express every unbind: it
//! needs a region even for an unbind (rxe's library reads it), and a window that
//! was never bound has none. Such an unbind has no effect, so a write of 0 bytes is
//! posted in its place.

use dv_sys::verbs::{ibv_access_flags, ibv_mw_bind, ibv_send_flags};

use super::chain::{link, send_work};
use super::device::{Device, QueueCalls, Refused};
use super::post::{check_room, withdraw};
use super::queue_pair::QueuePair;
use super::sends::Sent;
use crate::completion::CompletionOp;
use crate::control::{Access, MemoryWindow};
use crate::request::{BindRequest, PostError, SendFlags, SendOp, SendRequest};

impl<D: Device> QueuePair<D> {
    /// Posts a bind or an unbind. Returns the window's new rkey.
    ///
    /// # Errors
    /// [`PostError`]; nothing is posted then.
    ///
    /// # Safety
    /// Window and region are of this queue pair's protection domain. The region,
    /// and the region that the window was bound to last, are registered.
    #[inline(never)]
    pub unsafe fn post_bind(
        &mut self,
        window: &MemoryWindow,
        request: &BindRequest<'_>,
        wr_data: u32,
    ) -> Result<u32, PostError> {
        if !self.windows {
            return Err(PostError::NoWindows);
        }
        check_room(&mut self.sends, &self.record.sends.slots, self.forks)?;
        let slot = self.sends.posted();
        let end = self.sends.take(1);
        let sent = Sent {
            wr_id: request.wr_id,
            wr_data,
            op: CompletionOp::Bind,
            length: 0,
            signalled: request.flags.contains(SendFlags::SIGNALED),
        };
        self.record.sends.record(slot, sent);
        self.record.sends.slots.set_posted(end);
        let tag = self.send_tags.tag(slot);
        // SAFETY: required of the caller.
        let posted = unsafe { self.give(window, request, tag) };
        posted.map_err(|refused| {
            let slots = &self.record.sends.slots;
            withdraw(&mut self.sends, 1, slots, refused).error
        })
    }

    /// Passes the bind to libibverbs.
    ///
    /// # Safety
    /// As for [`Self::post_bind`].
    unsafe fn give(
        &self,
        window: &MemoryWindow,
        request: &BindRequest<'_>,
        tag: u64,
    ) -> Result<u32, Refused> {
        let queue = &self.record.queue;
        let region = match request.target {
            Some(target) => target.region.raw(),
            None => match window.region() {
                Some(region) => region,
                None => {
                    let nothing = SendRequest {
                        wr_id: 0,
                        op: SendOp::Write {
                            remote_addr: 0,
                            rkey: 0,
                        },
                        flags: request.flags & (SendFlags::SIGNALED | SendFlags::FENCE),
                        segments: &[],
                    };
                    let mut work = [send_work(&nothing, tag)];
                    // SAFETY: the request refers to no memory.
                    unsafe { queue.post_send(link(&mut work)) }?;
                    return Ok(window.rkey());
                }
            },
        };
        // SAFETY: integers and a pointer, for which zero is valid.
        let mut bind: ibv_mw_bind = unsafe { core::mem::zeroed() };
        bind.wr_id = tag;
        bind.send_flags = flags(request.flags);
        bind.bind_info.mr = region.as_ptr();
        if let Some(target) = request.target {
            bind.bind_info.addr = target.addr;
            bind.bind_info.length = target.length;
            bind.bind_info.mw_access_flags = rights(target.access);
        }
        // SAFETY: the window is alive, and so is the region, as the caller
        // promised.
        unsafe { queue.bind(window.as_ptr(), &mut bind) }
            .map_err(|error| Refused { taken: 0, error })?;
        // The library computes the new key from the same key in the same way.
        Ok(window.next_key())
    }
}

fn flags(flags: SendFlags) -> u32 {
    let pairs = [
        (SendFlags::SIGNALED, ibv_send_flags::IBV_SEND_SIGNALED),
        (SendFlags::FENCE, ibv_send_flags::IBV_SEND_FENCE),
    ];
    let set = pairs.into_iter().filter(|(ours, _)| flags.contains(*ours));
    set.fold(0, |all, (_, theirs)| all | theirs.0)
}

fn rights(access: Access) -> u32 {
    const REMOTE: u32 =
        ibv_access_flags::IBV_ACCESS_REMOTE_READ.0 | ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0;
    access.bits() & REMOTE
}
