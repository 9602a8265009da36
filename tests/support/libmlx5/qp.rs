//! A queue pair of libmlx5: created, connected, posted to.

use core::mem::zeroed;
use std::rc::Rc;

use dat_engine::{LinkLayer, RecvRequest, SendRequest};
use dv_sys::inline::{ibv_create_qp_ex, ibv_post_recv, ibv_post_send};
use dv_sys::mlx5dv::*;
use dv_sys::verbs::*;

use super::requests::{post_recvs, post_sends};
use super::{Cq, Pd, Srq, all_access, checked, errno};

/// Chosen so that the packet sequence numbers wrap soon.
const FIRST_PSN: u32 = 0xff_fff0;

/// The operations for which libmlx5 reserves room in the send ring. Without this
/// set it assumes the largest operation, and the ring is four times as long.
const SEND_OPS: u32 = ibv_qp_create_send_ops_flags::IBV_QP_EX_WITH_SEND.0
    | ibv_qp_create_send_ops_flags::IBV_QP_EX_WITH_SEND_WITH_IMM.0
    | ibv_qp_create_send_ops_flags::IBV_QP_EX_WITH_RDMA_WRITE.0
    | ibv_qp_create_send_ops_flags::IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM.0
    | ibv_qp_create_send_ops_flags::IBV_QP_EX_WITH_RDMA_READ.0;

/// The attributes of a QP.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub send_depth: u32,
    pub recv_depth: u32,
    pub send_segments: u32,
    pub recv_segments: u32,
    pub inline_bytes: u32,
    /// Receives come from a shared queue.
    pub shared: bool,
    /// The doorbell register is exclusive.
    pub exclusive: bool,
    /// CQEs have 128 bytes.
    pub large_cqes: bool,
    /// The CQ of receives has a completion channel.
    pub events: bool,
    /// Memory windows may be bound.
    pub windows: bool,
}

impl Default for Shape {
    fn default() -> Self {
        Shape {
            send_depth: 32,
            recv_depth: 32,
            send_segments: 4,
            recv_segments: 4,
            inline_bytes: 128,
            shared: false,
            exclusive: true,
            large_cqes: false,
            events: false,
            windows: false,
        }
    }
}

/// The other end of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    pub qpn: u32,
    /// First packet sequence number that the peer sends.
    pub psn: u32,
    pub lid: u16,
    pub gid: [u8; 16],
    pub gid_index: u8,
    pub ethernet: bool,
}

/// The attributes of a connection; the defaults are those of the engine.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    pub mtu: u32,
    pub timeout: u8,
    pub retries: u8,
    pub rnr_retries: u8,
    pub min_rnr_timer: u8,
    pub reads: u8,
}

impl Default for Link {
    fn default() -> Self {
        let (timeout, retries, rnr_retries, min_rnr_timer) = (14, 7, 7, 12);
        Link {
            mtu: 5,
            timeout,
            retries,
            rnr_retries,
            min_rnr_timer,
            reads: 4,
        }
    }
}

/// A reliable connection.
pub struct Qp {
    pub raw: *mut ibv_qp,
    pub pd: Rc<Pd>,
    pub send_cq: Rc<Cq>,
    pub recv_cq: Rc<Cq>,
    _srq: Option<Rc<Srq>>,
}

impl Qp {
    pub fn new(pd: &Rc<Pd>, cqs: [&Rc<Cq>; 2], srq: Option<&Rc<Srq>>, shape: Shape) -> Self {
        // SAFETY: domain, CQs and SRQ are alive and kept alive.
        unsafe {
            let mut attr: ibv_qp_init_attr_ex = zeroed();
            (attr.send_cq, attr.recv_cq) = (cqs[0].raw, cqs[1].raw);
            attr.qp_type = ibv_qp_type::IBV_QPT_RC;
            attr.cap.max_send_wr = shape.send_depth;
            attr.cap.max_send_sge = shape.send_segments;
            attr.cap.max_inline_data = shape.inline_bytes;
            if let Some(srq) = srq {
                attr.srq = srq.raw;
            } else {
                attr.cap.max_recv_wr = shape.recv_depth;
                attr.cap.max_recv_sge = shape.recv_segments;
            }
            attr.pd = pd.raw;
            attr.comp_mask = ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_PD.0
                | ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS.0;
            attr.send_ops_flags = SEND_OPS.into();
            if shape.windows {
                let bind = ibv_qp_create_send_ops_flags::IBV_QP_EX_WITH_BIND_MW.0;
                attr.send_ops_flags |= u64::from(bind);
            }
            let raw = ibv_create_qp_ex(pd.context.raw, &raw mut attr);
            assert!(!raw.is_null(), "ibv_create_qp_ex {shape:?}: {}", errno());
            let [send_cq, recv_cq] = cqs.map(Rc::clone);
            Qp {
                raw,
                pd: Rc::clone(pd),
                send_cq,
                recv_cq,
                _srq: srq.cloned(),
            }
        }
    }

    /// Creates a QP with room for every operation of the service, windows
    /// included. `signaled` makes every request signalled.
    pub fn of_every_operation(
        pd: &Rc<Pd>,
        cqs: [&Rc<Cq>; 2],
        depth: u32,
        signal_all: bool,
    ) -> Self {
        // SAFETY: domain and CQs are alive and kept alive; zeroed attributes
        // are valid.
        unsafe {
            let mut attr: ibv_qp_init_attr = zeroed();
            (attr.send_cq, attr.recv_cq) = (cqs[0].raw, cqs[1].raw);
            attr.qp_type = ibv_qp_type::IBV_QPT_RC;
            (attr.cap.max_send_wr, attr.cap.max_recv_wr) = (depth, depth);
            (attr.cap.max_send_sge, attr.cap.max_recv_sge) = (2, 2);
            attr.cap.max_inline_data = 64;
            attr.sq_sig_all = signal_all.into();
            let raw = ibv_create_qp(pd.raw, &raw mut attr);
            assert!(!raw.is_null(), "ibv_create_qp: {}", errno());
            let [send_cq, recv_cq] = cqs.map(Rc::clone);
            Qp {
                raw,
                pd: Rc::clone(pd),
                send_cq,
                recv_cq,
                _srq: None,
            }
        }
    }

    /// Posts one request. Returns the errno of `ibv_post_send`.
    ///
    /// # Safety
    /// As for [`Qp::post_send`].
    pub unsafe fn post(&self, request: &mut ibv_send_wr) -> Result<(), i32> {
        let mut bad = core::ptr::null_mut();
        // SAFETY: one request, valid during the call; the caller vouches for its
        // segments.
        match unsafe { ibv_post_send(self.raw, request, &raw mut bad) } {
            0 => Ok(()),
            error => Err(error),
        }
    }

    pub fn qpn(&self) -> u32 {
        // SAFETY: the QP is alive.
        unsafe { (*self.raw).qp_num }
    }

    /// Returns the address for the peer.
    pub fn address(&self) -> Peer {
        let (qpn, psn) = (self.qpn(), FIRST_PSN);
        let port = &self.pd.context.port;
        let from = port.gid().expect("a GID").entry;
        Peer {
            qpn,
            psn,
            lid: port.lid,
            gid: from.gid.0,
            gid_index: from.index,
            ethernet: port.link == LinkLayer::Ethernet,
        }
    }

    /// RESET → INIT → RTR → RTS.
    pub fn connect(&self, peer: &Peer, link: &Link) {
        self.init();
        self.rtr(peer, link);
        self.rts(link);
    }

    pub fn init(&self) {
        self.modify(
            &[
                ibv_qp_attr_mask::IBV_QP_STATE,
                ibv_qp_attr_mask::IBV_QP_PKEY_INDEX,
                ibv_qp_attr_mask::IBV_QP_PORT,
                ibv_qp_attr_mask::IBV_QP_ACCESS_FLAGS,
            ],
            |attr| {
                attr.qp_state = ibv_qp_state::IBV_QPS_INIT;
                attr.port_num = 1;
                attr.qp_access_flags = all_access();
            },
        );
    }

    fn rtr(&self, peer: &Peer, link: &Link) {
        self.modify(
            &[
                ibv_qp_attr_mask::IBV_QP_STATE,
                ibv_qp_attr_mask::IBV_QP_AV,
                ibv_qp_attr_mask::IBV_QP_PATH_MTU,
                ibv_qp_attr_mask::IBV_QP_DEST_QPN,
                ibv_qp_attr_mask::IBV_QP_RQ_PSN,
                ibv_qp_attr_mask::IBV_QP_MAX_DEST_RD_ATOMIC,
                ibv_qp_attr_mask::IBV_QP_MIN_RNR_TIMER,
            ],
            |attr| {
                attr.qp_state = ibv_qp_state::IBV_QPS_RTR;
                attr.path_mtu = link.mtu.min(self.pd.context.port.active_mtu.code().into());
                attr.dest_qp_num = peer.qpn;
                attr.rq_psn = peer.psn;
                attr.max_dest_rd_atomic = link.reads;
                attr.min_rnr_timer = link.min_rnr_timer;
                attr.ah_attr.dlid = peer.lid;
                attr.ah_attr.port_num = 1;
                // On Ethernet a peer has no LID.
                attr.ah_attr.is_global = peer.ethernet.into();
                attr.ah_attr.grh.dgid = ibv_gid { raw: peer.gid };
                attr.ah_attr.grh.sgid_index = self.address().gid_index;
                attr.ah_attr.grh.hop_limit = 64;
            },
        );
    }

    fn rts(&self, link: &Link) {
        self.modify(
            &[
                ibv_qp_attr_mask::IBV_QP_STATE,
                ibv_qp_attr_mask::IBV_QP_TIMEOUT,
                ibv_qp_attr_mask::IBV_QP_RETRY_CNT,
                ibv_qp_attr_mask::IBV_QP_RNR_RETRY,
                ibv_qp_attr_mask::IBV_QP_SQ_PSN,
                ibv_qp_attr_mask::IBV_QP_MAX_QP_RD_ATOMIC,
            ],
            |attr| {
                attr.qp_state = ibv_qp_state::IBV_QPS_RTS;
                attr.timeout = link.timeout;
                attr.retry_cnt = link.retries;
                attr.rnr_retry = link.rnr_retries;
                attr.sq_psn = FIRST_PSN;
                attr.max_rd_atomic = link.reads;
            },
        );
    }

    /// Gives the peer these access rights.
    pub fn allow(&self, access: u32) {
        self.modify(&[ibv_qp_attr_mask::IBV_QP_ACCESS_FLAGS], |attr| {
            attr.qp_access_flags = access;
        });
    }

    pub fn to_error(&self) {
        self.modify(&[ibv_qp_attr_mask::IBV_QP_STATE], |attr| {
            attr.qp_state = ibv_qp_state::IBV_QPS_ERR;
        });
    }

    pub fn state(&self) -> u32 {
        let mask = ibv_qp_attr_mask::IBV_QP_STATE.0 as i32;
        // SAFETY: zeroed attributes are valid; the QP is alive.
        unsafe {
            let (mut attr, mut init): (ibv_qp_attr, ibv_qp_init_attr) = zeroed();
            let failed = ibv_query_qp(self.raw, &raw mut attr, mask, &raw mut init);
            checked("ibv_query_qp", failed);
            attr.qp_state
        }
    }

    fn modify(&self, mask: &[ibv_qp_attr_mask], fill: impl FnOnce(&mut ibv_qp_attr)) {
        // SAFETY: zeroed attributes are valid; the QP is alive.
        unsafe {
            let mut attr: ibv_qp_attr = zeroed();
            fill(&mut attr);
            let mask = mask.iter().fold(0, |bits, flag| bits | flag.0);
            checked(
                "ibv_modify_qp",
                ibv_modify_qp(self.raw, &raw mut attr, mask as i32),
            );
        }
    }

    /// Returns the location of the rings. The query does not change what libmlx5
    /// does.
    pub fn rings(&self) -> mlx5dv_qp {
        // SAFETY: the QP is alive and `out` writable.
        unsafe {
            let mut out: mlx5dv_qp = zeroed();
            let mut object: mlx5dv_obj = zeroed();
            object.qp.in_ = self.raw;
            object.qp.out = &raw mut out;
            checked(
                "mlx5dv_init_obj",
                mlx5dv_init_obj(&raw mut object, MLX5DV_OBJ_QP.into()),
            );
            out
        }
    }

    /// Posts a list. Returns the errno of `ibv_post_send`, and how many were
    /// posted.
    ///
    /// # Safety
    /// The segments name memory that lives until the requests complete.
    pub unsafe fn post_send(&self, requests: &[SendRequest<'_>]) -> Result<(), (i32, usize)> {
        // SAFETY: the list is valid during the call; the caller vouches for the
        // segments.
        post_sends(requests, |first, bad| unsafe {
            ibv_post_send(self.raw, first, bad)
        })
    }

    /// Posts a list. Returns the errno of `ibv_post_recv`, and how many were
    /// posted.
    ///
    /// # Safety
    /// The segments name memory that lives until the requests complete.
    pub unsafe fn post_recv(&self, requests: &[RecvRequest<'_>]) -> Result<(), (i32, usize)> {
        // SAFETY: the list is valid during the call; the caller vouches for the
        // segments.
        post_recvs(requests, |first, bad| unsafe {
            ibv_post_recv(self.raw, first, bad)
        })
    }
}

impl Drop for Qp {
    fn drop(&mut self) {
        // SAFETY: created by `new`, not used afterwards.
        checked("ibv_destroy_qp", unsafe { ibv_destroy_qp(self.raw) });
    }
}
