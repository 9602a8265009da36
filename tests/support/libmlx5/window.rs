//! Memory windows.

use core::mem::zeroed;
use std::rc::Rc;

use dat_engine::SendFlags;
use dv_sys::inline::{ibv_alloc_mw, ibv_bind_mw, ibv_dealloc_mw, ibv_inc_rkey};
use dv_sys::verbs::*;

use super::{Buffer, Pd, Qp, checked, errno};
use crate::support::side::Memory;
use crate::support::work::BindWork;

/// The target of a bind.
#[derive(Clone, Copy)]
pub struct Bind<'a> {
    pub region: &'a Buffer,
    pub offset: usize,
    pub len: usize,
    /// `IBV_ACCESS_*`.
    pub access: u32,
}

impl Bind<'_> {
    fn info(&self) -> ibv_mw_bind_info {
        ibv_mw_bind_info {
            mr: self.region.mr,
            addr: self.region.addr() + self.offset as u64,
            length: self.len as u64,
            mw_access_flags: self.access,
        }
    }
}

/// A memory window.
pub struct Window {
    pub raw: *mut ibv_mw,
    /// The key of the latest bind.
    pub rkey: u32,
    _pd: Rc<Pd>,
}

impl Window {
    /// Creates a window of type 1 or 2.
    pub fn new(pd: &Rc<Pd>, kind: u32) -> Self {
        // SAFETY: the domain is alive.
        let raw = unsafe { ibv_alloc_mw(pd.raw, kind) };
        assert!(!raw.is_null(), "ibv_alloc_mw of type {kind}: {}", errno());
        Window {
            raw,
            // SAFETY: just allocated.
            rkey: unsafe { (*raw).rkey },
            _pd: Rc::clone(pd),
        }
    }

    /// Posts a signalled bind of a window of type 1; without a target, an unbind.
    pub fn bind_one(&mut self, qp: &Qp, wr_id: u64, to: Option<Bind<'_>>) {
        // SAFETY: zeroes are an unbind; QP and window are alive.
        unsafe {
            let mut bind: ibv_mw_bind = zeroed();
            bind.wr_id = wr_id;
            bind.send_flags = ibv_send_flags::IBV_SEND_SIGNALED.0;
            if let Some(to) = to {
                bind.bind_info = to.info();
            }
            checked("ibv_bind_mw", ibv_bind_mw(qp.raw, self.raw, &raw mut bind));
            self.rkey = (*self.raw).rkey;
        }
    }

    /// Posts a bind of a window of type 1 with the keys of another window and
    /// region, which are substituted for the call. Returns the new key.
    pub fn bind_as(&mut self, qp: &Qp, region: &Buffer, work: &BindWork) -> Result<u32, i32> {
        let mut send_flags = 0;
        for (ours, theirs) in [
            (SendFlags::SIGNALED, ibv_send_flags::IBV_SEND_SIGNALED.0),
            (SendFlags::FENCE, ibv_send_flags::IBV_SEND_FENCE.0),
        ] {
            if work.flags.contains(ours) {
                send_flags |= theirs;
            }
        }
        // SAFETY: zeroes are an unbind; all objects are alive, and the library
        // only reads their keys while it posts.
        unsafe {
            let own = (self.rkey, (*region.mr).lkey);
            ((*self.raw).rkey, (*region.mr).lkey) = (work.keys.rkey, work.keys.lkey);
            let mut bind: ibv_mw_bind = zeroed();
            (bind.wr_id, bind.send_flags) = (work.wr_id, send_flags);
            if let Some((offset, length, access)) = work.to {
                bind.bind_info = ibv_mw_bind_info {
                    mr: region.mr,
                    addr: work.keys.addr + offset,
                    length,
                    mw_access_flags: access.bits(),
                };
            }
            let errno = ibv_bind_mw(qp.raw, self.raw, &raw mut bind);
            let bound = (*self.raw).rkey;
            ((*self.raw).rkey, (*region.mr).lkey) = own;
            if errno == 0 { Ok(bound) } else { Err(errno) }
        }
    }

    /// Returns a request that binds a window of type 2 under its next key.
    pub fn bind_two(&mut self, wr_id: u64, to: Bind<'_>) -> ibv_send_wr {
        let mut wr = signalled(wr_id, ibv_wr_opcode::IBV_WR_BIND_MW);
        // SAFETY: plain arithmetic on a key.
        self.rkey = unsafe { ibv_inc_rkey(self.rkey) };
        wr.bind_mw_tso_union.bind_mw = bind_mw_t {
            mw: self.raw,
            rkey: self.rkey,
            bind_info: to.info(),
        };
        wr
    }

    /// Returns a request that invalidates the window locally.
    pub fn invalidate(&self, wr_id: u64) -> ibv_send_wr {
        let mut wr = signalled(wr_id, ibv_wr_opcode::IBV_WR_LOCAL_INV);
        wr.imm_data_invalidated_rkey_union.invalidated_rkey = self.rkey;
        wr
    }
}

/// Returns a signalled request without segments.
fn signalled(wr_id: u64, opcode: ibv_wr_opcode::Type) -> ibv_send_wr {
    // SAFETY: all zeroes is a valid ibv_send_wr: null pointers and numbers.
    let mut wr: ibv_send_wr = unsafe { zeroed() };
    wr.wr_id = wr_id;
    wr.opcode = opcode;
    wr.send_flags = ibv_send_flags::IBV_SEND_SIGNALED.0;
    wr
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: allocated by `new`, not used afterwards.
        checked("ibv_dealloc_mw", unsafe { ibv_dealloc_mw(self.raw) });
    }
}
