//! Completion queues and their channels.

use core::mem::zeroed;
use core::ptr;
use std::rc::Rc;

use dv_sys::inline::{ibv_cq_ex_to_cq, ibv_create_cq_ex, ibv_poll_cq, ibv_req_notify_cq};
use dv_sys::mlx5dv::*;
use dv_sys::verbs::*;

use super::{Context, checked, errno};
use crate::support::operations;

/// A completion channel.
pub struct Channel {
    pub raw: *mut ibv_comp_channel,
    pub context: Rc<Context>,
}

impl Channel {
    /// Creates a channel whose reads do not block.
    pub fn new(context: &Rc<Context>) -> Rc<Self> {
        // SAFETY: the context is open; the descriptor belongs to the channel.
        unsafe {
            let raw = ibv_create_comp_channel(context.raw);
            assert!(!raw.is_null(), "ibv_create_comp_channel: {}", errno());
            checked(
                "fcntl",
                libc::fcntl((*raw).fd, libc::F_SETFL, libc::O_NONBLOCK),
            );
            Rc::new(Channel {
                raw,
                context: Rc::clone(context),
            })
        }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: created by `new`; its CQs hold an Rc.
        checked("ibv_destroy_comp_channel", unsafe {
            ibv_destroy_comp_channel(self.raw)
        });
    }
}

/// A result of `ibv_poll_cq`, by value. Fields that it leaves unset are absent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub wr_id: u64,
    pub status: u32,
    pub qp_num: u32,
    /// `enum ibv_wc_opcode`, if the request succeeded.
    pub opcode: Option<u32>,
    /// For a receive or read that succeeded.
    pub byte_len: Option<u32>,
    /// In host byte order.
    pub imm: Option<u32>,
    /// The key that a SEND has invalidated.
    pub invalidated: Option<u32>,
    /// For an error.
    pub vendor_err: Option<u32>,
}

/// Size in bytes of an ordinary CQE.
const CQE: u16 = 64;

/// A completion queue polled by libmlx5.
pub struct Cq {
    pub raw: *mut ibv_cq,
    channel: Option<Rc<Channel>>,
    _context: Rc<Context>,
}

impl Cq {
    pub fn new(context: &Rc<Context>, depth: u32) -> Rc<Self> {
        Self::create(context, depth, None, CQE)
    }

    pub fn with_channel(channel: &Rc<Channel>, depth: u32) -> Rc<Self> {
        Self::create(&channel.context, depth, Some(Rc::clone(channel)), CQE)
    }

    pub fn with_large_cqes(context: &Rc<Context>, depth: u32) -> Rc<Self> {
        Self::create(context, depth, None, 2 * CQE)
    }

    fn create(
        context: &Rc<Context>,
        depth: u32,
        channel: Option<Rc<Channel>>,
        cqe_size: u16,
    ) -> Rc<Self> {
        // SAFETY: context and channel are open and outlive the CQ; zeroed
        // attributes are valid.
        unsafe {
            let mut attr: ibv_cq_init_attr_ex = zeroed();
            attr.cqe = depth;
            attr.channel = channel
                .as_ref()
                .map_or(ptr::null_mut(), |channel| channel.raw);
            let mut size: mlx5dv_cq_init_attr = zeroed();
            size.comp_mask = MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE.into();
            size.cqe_size = cqe_size;
            let cq = mlx5dv_create_cq(context.raw, &raw mut attr, &raw mut size);
            assert!(!cq.is_null(), "mlx5dv_create_cq({depth}): {}", errno());
            let raw = ibv_cq_ex_to_cq(cq);
            Rc::new(Cq {
                raw,
                channel,
                _context: Rc::clone(context),
            })
        }
    }

    /// Resizes to this many completions. Returns the new capacity.
    ///
    /// # Errors
    /// The errno of `ibv_resize_cq`.
    pub fn resize(&self, depth: u32) -> Result<u32, i32> {
        // SAFETY: the CQ is alive.
        match unsafe { ibv_resize_cq(self.raw, depth as i32) } {
            // SAFETY: as above.
            0 => Ok(unsafe { (*self.raw).cqe } as u32),
            error => Err(error),
        }
    }

    /// Creates an extended CQ.
    ///
    /// # Errors
    /// The errno of `ibv_create_cq_ex`.
    pub fn extended(
        context: &Rc<Context>,
        depth: u32,
        wc_flags: u64,
        flags: u32,
    ) -> Result<Rc<Self>, i32> {
        // SAFETY: the context is open; zeroed attributes are valid.
        unsafe {
            let mut attr: ibv_cq_init_attr_ex = zeroed();
            (attr.cqe, attr.wc_flags) = (depth, wc_flags);
            if flags != 0 {
                attr.comp_mask = ibv_cq_init_attr_mask::IBV_CQ_INIT_ATTR_MASK_FLAGS.0;
                attr.flags = flags;
            }
            let cq = ibv_create_cq_ex(context.raw, &raw mut attr);
            if cq.is_null() {
                return Err(errno().raw_os_error().expect("an errno"));
            }
            Ok(Rc::new(Cq {
                raw: ibv_cq_ex_to_cq(cq),
                channel: None,
                _context: Rc::clone(context),
            }))
        }
    }

    pub fn poll(&self) -> Option<Answer> {
        // SAFETY: ibv_wc is plain data and large enough for one entry.
        unsafe {
            let mut wc: ibv_wc = zeroed();
            match ibv_poll_cq(self.raw, 1, &raw mut wc) {
                0 => None,
                1 => Some(answer(&wc)),
                error => panic!("ibv_poll_cq: {error}"),
            }
        }
    }

    pub fn arm(&self, solicited_only: bool) {
        // SAFETY: the CQ is alive.
        let result = unsafe { ibv_req_notify_cq(self.raw, i32::from(solicited_only)) };
        checked("ibv_req_notify_cq", result);
    }

    /// Takes and acknowledges the events of its channel, which has no other CQ.
    pub fn take_events(&self) -> u32 {
        let Some(channel) = &self.channel else {
            return 0;
        };
        let mut events = 0;
        let (mut cq, mut context) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the channel is alive and both results are writable.
        while unsafe { ibv_get_cq_event(channel.raw, &raw mut cq, &raw mut context) } == 0 {
            assert_eq!(cq, self.raw, "an event of another queue");
            events += 1;
        }
        // SAFETY: this many events were read.
        unsafe { ibv_ack_cq_events(self.raw, events) };
        events
    }

    /// Returns the location of the ring. After this call libmlx5 no longer removes
    /// the completions of queue pairs that are destroyed.
    pub fn rings(&self) -> mlx5dv_cq {
        // SAFETY: the CQ is alive and `out` writable.
        unsafe {
            let mut out: mlx5dv_cq = zeroed();
            let mut object: mlx5dv_obj = zeroed();
            object.cq.in_ = self.raw;
            object.cq.out = &raw mut out;
            checked(
                "mlx5dv_init_obj",
                mlx5dv_init_obj(&raw mut object, MLX5DV_OBJ_CQ.into()),
            );
            out
        }
    }
}

/// Returns the fields of a completion that its status and opcode define
/// (`ibv_poll_cq(3)`).
fn answer(wc: &ibv_wc) -> Answer {
    let good = wc.status == ibv_wc_status::IBV_WC_SUCCESS;
    let with_length = operations::has_length(wc.opcode);
    let received = wc.opcode & ibv_wc_opcode::IBV_WC_RECV != 0;
    let with_imm = received && wc.wc_flags & ibv_wc_flags::IBV_WC_WITH_IMM.0 != 0;
    let with_inv = received && wc.wc_flags & ibv_wc_flags::IBV_WC_WITH_INV.0 != 0;
    // SAFETY: both members of the union are plain 32-bit numbers.
    let key = unsafe { wc.imm_data_invalidated_rkey_union.invalidated_rkey };
    // SAFETY: as above.
    let imm = u32::from_be(unsafe { wc.imm_data_invalidated_rkey_union.imm_data });
    Answer {
        wr_id: wc.wr_id,
        status: wc.status,
        qp_num: wc.qp_num,
        opcode: good.then_some(wc.opcode),
        byte_len: (good && with_length).then_some(wc.byte_len),
        imm: (good && with_imm).then_some(imm),
        invalidated: (good && with_inv).then_some(key),
        vendor_err: (!good).then_some(wc.vendor_err),
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        // SAFETY: made by `create`; its QPs hold an Rc.
        checked("ibv_destroy_cq", unsafe { ibv_destroy_cq(self.raw) });
    }
}
