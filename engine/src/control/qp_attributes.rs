//! The attributes of a connected queue pair, as the device reports them.

use super::connect::empty;
use super::qp::VerbsQp;
use crate::error::ControlError;
use dv_sys::verbs::{self, ibv_qp_attr_mask as Mask, ibv_qp_init_attr};

/// The attributes of a connected queue pair (`ibv_query_qp`), in the units of
/// [`super::TransportOptions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpAttributes {
    /// The number of the peer's queue pair.
    pub peer_qpn: u32,
    /// The path MTU, as a code of `enum ibv_mtu`.
    pub mtu: u8,
    /// The ACK timeout.
    pub timeout: u8,
    /// The number of retries after an ACK timeout.
    pub retry: u8,
    /// The number of retries after an RNR NAK.
    pub rnr_retry: u8,
    /// The delay that the peer has to wait after an RNR NAK of this side.
    pub min_rnr_timer: u8,
    /// The most RDMA reads of this side in flight.
    pub reads_issued: u8,
    /// The most RDMA reads of the peer served at a time.
    pub reads_served: u8,
    /// The index of the local GID.
    pub gid_index: u8,
    /// The service level.
    pub sl: u8,
    /// The traffic class.
    pub traffic_class: u8,
    /// The index of the partition in the port's P_Key table.
    pub pkey_index: u16,
}

impl VerbsQp {
    /// Queries the attributes of a connected queue pair.
    ///
    /// # Errors
    /// The device failed.
    pub fn query(&self) -> Result<QpAttributes, ControlError> {
        const OPERATION: &str = "query a connected queue pair";
        self.context().require_here(OPERATION)?;
        let mut attr = empty();
        // SAFETY: integers and pointers, for which zero is valid.
        let mut init: ibv_qp_init_attr = unsafe { core::mem::zeroed() };
        let mask = Mask::IBV_QP_DEST_QPN
            | Mask::IBV_QP_PATH_MTU
            | Mask::IBV_QP_TIMEOUT
            | Mask::IBV_QP_RETRY_CNT
            | Mask::IBV_QP_RNR_RETRY
            | Mask::IBV_QP_MIN_RNR_TIMER
            | Mask::IBV_QP_MAX_QP_RD_ATOMIC
            | Mask::IBV_QP_MAX_DEST_RD_ATOMIC
            | Mask::IBV_QP_PKEY_INDEX
            | Mask::IBV_QP_AV;
        // SAFETY: the QP is alive, and both results are writable.
        let errno = unsafe {
            verbs::ibv_query_qp(
                self.as_ptr(),
                &raw mut attr,
                mask.0.cast_signed(),
                &raw mut init,
            )
        };
        match errno {
            0 => Ok(QpAttributes {
                peer_qpn: attr.dest_qp_num,
                mtu: u8::try_from(attr.path_mtu).unwrap_or(0),
                timeout: attr.timeout,
                retry: attr.retry_cnt,
                rnr_retry: attr.rnr_retry,
                min_rnr_timer: attr.min_rnr_timer,
                reads_issued: attr.max_rd_atomic,
                reads_served: attr.max_dest_rd_atomic,
                gid_index: attr.ah_attr.grh.sgid_index,
                sl: attr.ah_attr.sl,
                traffic_class: attr.ah_attr.grh.traffic_class,
                pkey_index: attr.pkey_index,
            }),
            _ => Err(ControlError::verbs(OPERATION, errno)),
        }
    }
}
