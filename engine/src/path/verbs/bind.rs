//! Posting binds of memory windows through libibverbs.
//!
//! `ibv_bind_mw` posts to the same send queue as `ibv_post_send`, and increments
//! the window's key as the direct path does. It cannot express every unbind: it
//! needs a region even for an unbind (rxe's library reads it), and a window that
//! was never bound has none. Such an unbind has no effect, so a write of 0 bytes is
//! posted in its place.

use dv_sys::verbs::{ibv_access_flags, ibv_mw_bind};

use super::chain::{flags, link_sends, send_work};
use super::device::{Device, QueueCalls, Refused};
use super::queue_pair::QueuePair;
use super::shadow::Request;
use super::table::Side;
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
        if !self.grant.windows {
            return Err(PostError::NoWindows);
        }
        self.check_room(Side::Send)?;
        let recorded = Request {
            wr_id: request.wr_id,
            wr_data,
            op: CompletionOp::Bind,
            length: 0,
            signalled: request.flags.contains(SendFlags::SIGNALED),
        };
        let tag = self.record(Side::Send, recorded);
        let mut key = 0;
        self.pass_on(Side::Send, 1, |queue| {
            // SAFETY: window and region are of one domain, and the region is registered.
            key = unsafe { bind(queue, window, request, tag) }?;
            Ok(())
        })
        .map_err(|refused| refused.error)?;
        Ok(key)
    }
}

/// Passes the bind to libibverbs. Returns the window's new rkey.
///
/// # Safety
/// As for [`QueuePair::post_bind`].
unsafe fn bind(
    queue: &impl QueueCalls,
    window: &MemoryWindow,
    request: &BindRequest<'_>,
    tag: u64,
) -> Result<u32, Refused> {
    let flags_of_bind = request.flags & (SendFlags::SIGNALED | SendFlags::FENCE);
    let target = request.target.map(|target| target.region.raw());
    let Some(region) = target.or_else(|| window.region()) else {
        let nothing = SendRequest {
            wr_id: 0,
            op: SendOp::Write {
                remote_addr: 0,
                rkey: 0,
            },
            flags: flags_of_bind,
            segments: &[],
        };
        let mut work = [send_work(&nothing, tag)];
        // SAFETY: the request refers to no memory.
        unsafe { queue.post_send(link_sends(&mut work)) }?;
        return Ok(window.rkey());
    };
    // SAFETY: integers and a pointer, for which zero is valid.
    let mut bind: ibv_mw_bind = unsafe { core::mem::zeroed() };
    bind.wr_id = tag;
    bind.send_flags = flags(flags_of_bind);
    bind.bind_info.mr = region.as_ptr();
    if let Some(target) = request.target {
        bind.bind_info.addr = target.addr;
        bind.bind_info.length = target.length;
        bind.bind_info.mw_access_flags = rights(target.access);
    }
    // SAFETY: the window is alive, and so is the region, as the caller promised.
    unsafe { queue.bind(window.as_ptr(), &mut bind) }
        .map_err(|error| Refused { taken: 0, error })?;
    // The library computes the new key from the same key in the same way.
    Ok(window.next_key())
}

fn rights(access: Access) -> u32 {
    const REMOTE: u32 =
        ibv_access_flags::IBV_ACCESS_REMOTE_READ.0 | ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0;
    access.bits() & REMOTE
}
