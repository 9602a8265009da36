//! A device opened through libibverbs, and the queues that queue pairs share.

use std::ffi::CStr;
use std::mem::zeroed;
use std::ptr::{NonNull, null_mut};

use dat_engine::{LinkLayer, PortInfo};
use dv_sys::verbs::{
    ibv_access_flags as Access, ibv_alloc_pd, ibv_comp_channel, ibv_context, ibv_cq,
    ibv_create_comp_channel, ibv_create_cq, ibv_create_qp, ibv_create_srq, ibv_free_device_list,
    ibv_get_device_list, ibv_get_device_name, ibv_modify_qp, ibv_open_device, ibv_pd, ibv_qp,
    ibv_qp_attr, ibv_qp_attr_mask as Mask, ibv_qp_init_attr, ibv_qp_state, ibv_qp_type, ibv_srq,
    ibv_srq_init_attr,
};

use crate::failure::Failure;

/// A device opened through libibverbs.
pub(crate) struct Verbs {
    pub(super) context: NonNull<ibv_context>,
    pub(super) pd: NonNull<ibv_pd>,
    port: PortInfo,
    pub(super) has_atomics: bool,
}

/// Converts the result of a libibverbs call, which is null on failure.
pub(super) fn non_null<T>(call: &str, answer: *mut T) -> Result<NonNull<T>, Failure> {
    NonNull::new(answer)
        .ok_or_else(|| Failure::environment(format!("{call}: {}", std::io::Error::last_os_error())))
}

impl Verbs {
    /// Opens a device, which may have atomic operations.
    pub(crate) fn open(name: &str, port: PortInfo, has_atomics: bool) -> Result<Self, Failure> {
        // SAFETY: the list is null or has `count` entries, and is freed after use;
        // names are C strings.
        let context = unsafe {
            let mut count = 0;
            let list = non_null("ibv_get_device_list", ibv_get_device_list(&raw mut count))?;
            let devices = core::slice::from_raw_parts(list.as_ptr(), count as usize);
            let wanted = devices.iter().find(|&&device| {
                CStr::from_ptr(ibv_get_device_name(device)).to_bytes() == name.as_bytes()
            });
            let context = wanted.map_or(null_mut(), |&device| ibv_open_device(device));
            ibv_free_device_list(list.as_ptr());
            non_null("ibv_open_device", context)?
        };
        // SAFETY: an open device.
        let pd = non_null("ibv_alloc_pd", unsafe { ibv_alloc_pd(context.as_ptr()) })?;
        Ok(Self {
            context,
            pd,
            port,
            has_atomics,
        })
    }

    /// Returns the access that the measured requests need.
    pub(super) fn access(&self) -> u32 {
        let atomic = match self.has_atomics {
            true => Access::IBV_ACCESS_REMOTE_ATOMIC.0,
            false => 0,
        };
        Access::IBV_ACCESS_REMOTE_WRITE.0 | Access::IBV_ACCESS_REMOTE_READ.0 | atomic
    }

    /// Creates two completion queues, and a shared receive queue of this depth if there is one.
    pub(crate) fn queues(
        &self,
        completions: [u32; 2],
        receives: Option<u32>,
    ) -> Result<Queues, Failure> {
        let (context, pd) = (self.context.as_ptr(), self.pd);
        // SAFETY: an open device; the attributes are local, and zero is valid for
        // them.
        unsafe {
            let channel = non_null("ibv_create_comp_channel", ibv_create_comp_channel(context))?;
            let queue = |depth: u32, channel| {
                non_null(
                    "ibv_create_cq",
                    ibv_create_cq(context, depth as i32, null_mut(), channel, 0),
                )
            };
            let [sent, received] = completions;
            let mut queues = Queues {
                pd,
                sent: queue(sent, null_mut())?,
                received: queue(received, channel.as_ptr())?,
                channel,
                srq: null_mut(),
            };
            if let Some(receives) = receives {
                let mut wanted: ibv_srq_init_attr = zeroed();
                (wanted.attr.max_wr, wanted.attr.max_sge) = (receives, 1);
                let srq = ibv_create_srq(pd.as_ptr(), &raw mut wanted);
                queues.srq = non_null("ibv_create_srq", srq)?.as_ptr();
            }
            Ok(queues)
        }
    }

    /// Connects a live queue pair to the queue pair with this number on the same port:
    /// RESET → INIT → RTR → RTS, as `ibv_rc_pingpong` does.
    ///
    /// # Safety
    /// The queue pair is alive, and of this device.
    pub(super) unsafe fn connect(&self, qp: NonNull<ibv_qp>, peer: u32) -> Result<(), Failure> {
        let port = &self.port;
        let modify = |attributes: &mut ibv_qp_attr, mask: u32| {
            // SAFETY: the queue pair is alive; the attributes are only read.
            match unsafe { ibv_modify_qp(qp.as_ptr(), attributes, mask as i32) } {
                0 => Ok(()),
                errno => Err(Failure::environment(format!(
                    "ibv_modify_qp: {}",
                    std::io::Error::from_raw_os_error(errno)
                ))),
            }
        };
        // SAFETY: all members are integers, for which zero is valid.
        let mut attributes: ibv_qp_attr = unsafe { zeroed() };
        attributes.qp_state = ibv_qp_state::IBV_QPS_INIT;
        attributes.port_num = port.number;
        attributes.qp_access_flags = self.access();
        let init = Mask::IBV_QP_STATE.0
            | Mask::IBV_QP_PKEY_INDEX.0
            | Mask::IBV_QP_PORT.0
            | Mask::IBV_QP_ACCESS_FLAGS.0;
        modify(&mut attributes, init)?;
        attributes.qp_state = ibv_qp_state::IBV_QPS_RTR;
        attributes.path_mtu = port.active_mtu.code().into();
        attributes.dest_qp_num = peer;
        attributes.max_dest_rd_atomic = 1;
        attributes.min_rnr_timer = 12;
        attributes.ah_attr.port_num = port.number;
        attributes.ah_attr.dlid = port.lid;
        if port.link == LinkLayer::Ethernet {
            let gid = port.gid().map_err(Failure::from)?.entry;
            attributes.ah_attr.is_global = 1;
            attributes.ah_attr.grh.hop_limit = 64;
            attributes.ah_attr.grh.sgid_index = gid.index;
            attributes.ah_attr.grh.dgid.raw = gid.gid.0;
        }
        let ready = Mask::IBV_QP_STATE.0
            | Mask::IBV_QP_AV.0
            | Mask::IBV_QP_PATH_MTU.0
            | Mask::IBV_QP_DEST_QPN.0
            | Mask::IBV_QP_RQ_PSN.0
            | Mask::IBV_QP_MAX_DEST_RD_ATOMIC.0
            | Mask::IBV_QP_MIN_RNR_TIMER.0;
        modify(&mut attributes, ready)?;
        attributes.qp_state = ibv_qp_state::IBV_QPS_RTS;
        (attributes.timeout, attributes.retry_cnt) = (14, 7);
        (attributes.rnr_retry, attributes.max_rd_atomic) = (7, 1);
        let sends = Mask::IBV_QP_STATE.0
            | Mask::IBV_QP_TIMEOUT.0
            | Mask::IBV_QP_RETRY_CNT.0
            | Mask::IBV_QP_RNR_RETRY.0
            | Mask::IBV_QP_SQ_PSN.0
            | Mask::IBV_QP_MAX_QP_RD_ATOMIC.0;
        modify(&mut attributes, sends)
    }
}

/// The queues that queue pairs share.
#[derive(Clone, Copy)]
pub(crate) struct Queues {
    pub(super) pd: NonNull<ibv_pd>,
    pub(super) sent: NonNull<ibv_cq>,
    pub(super) received: NonNull<ibv_cq>,
    /// Of the events of `received`.
    pub(super) channel: NonNull<ibv_comp_channel>,
    /// Null if there is none.
    pub(super) srq: *mut ibv_srq,
}

impl Queues {
    /// Creates a queue pair, which lives until the process ends. `receives` is the depth of its
    /// own receive queue, if there is no shared one.
    pub(crate) fn queue_pair(
        &self,
        sends: u32,
        receives: u32,
        inline: u32,
    ) -> Result<NonNull<ibv_qp>, Failure> {
        // SAFETY: live queues of one device; the attributes are local, and zero is
        // valid for them.
        unsafe {
            let mut wanted: ibv_qp_init_attr = zeroed();
            (wanted.send_cq, wanted.recv_cq) = (self.sent.as_ptr(), self.received.as_ptr());
            (wanted.srq, wanted.qp_type) = (self.srq, ibv_qp_type::IBV_QPT_RC);
            (wanted.cap.max_send_wr, wanted.cap.max_send_sge) = (sends, 1);
            if self.srq.is_null() {
                (wanted.cap.max_recv_wr, wanted.cap.max_recv_sge) = (receives, 1);
            }
            wanted.cap.max_inline_data = inline;
            non_null(
                "ibv_create_qp",
                ibv_create_qp(self.pd.as_ptr(), &raw mut wanted),
            )
        }
    }
}

/// The type of a function that posts requests.
pub(super) type Post<Q, W> = unsafe extern "C" fn(*mut Q, *mut W, *mut *mut W) -> i32;
