//! Shared receive queues.

use core::mem::zeroed;
use std::rc::Rc;

use dat_engine::RecvRequest;
use dv_sys::inline::ibv_post_srq_recv;
use dv_sys::mlx5dv::*;
use dv_sys::verbs::*;

use super::requests::post_recvs;
use super::{Pd, checked, errno};

/// A shared receive queue.
pub struct Srq {
    pub raw: *mut ibv_srq,
    _pd: Rc<Pd>,
}

impl Srq {
    pub fn new(pd: &Rc<Pd>, depth: u32, max_segments: u32) -> Rc<Self> {
        // SAFETY: the domain is alive.
        unsafe {
            let mut attr: ibv_srq_init_attr = zeroed();
            (attr.attr.max_wr, attr.attr.max_sge) = (depth, max_segments);
            let raw = ibv_create_srq(pd.raw, &raw mut attr);
            assert!(!raw.is_null(), "ibv_create_srq: {}", errno());
            Rc::new(Srq {
                raw,
                _pd: Rc::clone(pd),
            })
        }
    }

    /// Returns the location of the ring. The query does not change what libmlx5 does.
    pub fn rings(&self) -> mlx5dv_srq {
        // SAFETY: the SRQ is alive and `out` writable.
        unsafe {
            let mut out: mlx5dv_srq = zeroed();
            let mut object: mlx5dv_obj = zeroed();
            object.srq.in_ = self.raw;
            object.srq.out = &raw mut out;
            checked(
                "mlx5dv_init_obj",
                mlx5dv_init_obj(&raw mut object, MLX5DV_OBJ_SRQ.into()),
            );
            out
        }
    }

    /// Posts a list. Returns the errno of `ibv_post_srq_recv`, and how many were
    /// posted.
    pub fn post(&self, requests: &[RecvRequest<'_>]) -> Result<(), (i32, usize)> {
        // SAFETY: the list is built over `requests`, which outlives the call.
        post_recvs(requests, |first, bad| unsafe {
            ibv_post_srq_recv(self.raw, first, bad)
        })
    }
}

impl Drop for Srq {
    fn drop(&mut self) {
        // SAFETY: created by `new`; its QPs hold an Rc.
        checked("ibv_destroy_srq", unsafe { ibv_destroy_srq(self.raw) });
    }
}
