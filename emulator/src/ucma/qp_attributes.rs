//! The attributes with which an id's queue pair moves from state to state (the
//! kernel's `rdma_init_qp_attr`).

use libc::EINVAL;
use zerocopy::FromZeros;

use super::abi::{QpAttr, UDP_QKEY};
use super::id::Id;
use super::rdma_cm::RdmaCm;
use crate::abi::AhAttr;
use crate::cm::{Attributes, Path, QpState};
use crate::refusal::{OrRefuse, refuse, refuse_if};
use crate::spec::Result;

/// `IBV_QPS_*`.
mod state {
    pub(super) const INIT: u32 = 1;
    pub(super) const RTR: u32 = 2;
    pub(super) const RTS: u32 = 3;
    pub(super) const ERR: u32 = 6;
}

/// `IBV_QP_*`.
mod mask {
    pub(super) const STATE: u32 = 1;
    pub(super) const ACCESS_FLAGS: u32 = 1 << 3;
    pub(super) const PKEY_INDEX: u32 = 1 << 4;
    pub(super) const PORT: u32 = 1 << 5;
    pub(super) const QKEY: u32 = 1 << 6;
    pub(super) const AV: u32 = 1 << 7;
    pub(super) const PATH_MTU: u32 = 1 << 8;
    pub(super) const TIMEOUT: u32 = 1 << 9;
    pub(super) const RETRY_CNT: u32 = 1 << 10;
    pub(super) const RNR_RETRY: u32 = 1 << 11;
    pub(super) const RQ_PSN: u32 = 1 << 12;
    pub(super) const MAX_QP_RD_ATOMIC: u32 = 1 << 13;
    pub(super) const MIN_RNR_TIMER: u32 = 1 << 15;
    pub(super) const SQ_PSN: u32 = 1 << 16;
    pub(super) const MAX_DEST_RD_ATOMIC: u32 = 1 << 17;
    pub(super) const DEST_QPN: u32 = 1 << 20;
}

/// `IBV_ACCESS_*`.
mod access {
    pub(super) const REMOTE_WRITE: u32 = 1 << 1;
    pub(super) const REMOTE_READ: u32 = 1 << 2;
    pub(super) const REMOTE_ATOMIC: u32 = 1 << 3;
}

impl RdmaCm {
    /// Returns the attributes for a state of the queue pair.
    ///
    /// # Errors
    /// `EINVAL` without a device, for other states than INIT, RTR and RTS, and
    /// for a state that the connection has not reached.
    pub(super) fn queue_pair_attributes(
        &mut self,
        file: u64,
        number: u32,
        qp_state: u32,
    ) -> Result<QpAttr> {
        refuse_if(
            qp_state > state::ERR,
            EINVAL,
            "there is no queue pair state of this number",
        )?;
        let is_roce = self.network.is_roce();
        let (id, port) = self.id_with_port(file, number)?;
        let comm = id.comm.filter(|_| !id.is_datagram());
        let mut attr = QpAttr::new_zeroed();
        attr.qp_state = qp_state;
        attr.port_num = port.port;
        let Some(comm) = comm else {
            without_connection(id, &mut attr);
            return Ok(attr);
        };
        let ack_timeout = id.ack_timeout;
        let to = match qp_state {
            state::INIT => QpState::Init,
            state::RTR => QpState::Rtr,
            state::RTS => QpState::Rts,
            _ => {
                return Err(refuse(
                    EINVAL,
                    "rdma_cm has attributes for the states INIT, RTR and RTS only",
                ));
            }
        };
        let known = self.cm.attributes(comm, to).or_refuse(
            EINVAL,
            "the connection has not reached the state that has these attributes",
        )?;
        match known {
            Attributes::Init { remote_reads } => {
                attr.qp_attr_mask =
                    mask::STATE | mask::ACCESS_FLAGS | mask::PKEY_INDEX | mask::PORT;
                attr.qp_access_flags = access::REMOTE_WRITE;
                if remote_reads {
                    attr.qp_access_flags |= access::REMOTE_READ | access::REMOTE_ATOMIC;
                }
            }
            Attributes::Rtr {
                path,
                remote_qpn,
                rq_psn,
                max_dest_rd_atomic,
            } => {
                attr.qp_attr_mask = mask::STATE
                    | mask::AV
                    | mask::PATH_MTU
                    | mask::DEST_QPN
                    | mask::RQ_PSN
                    | mask::MAX_DEST_RD_ATOMIC
                    | mask::MIN_RNR_TIMER;
                let gid_index = self.network.gid_index(port, &path.sgid);
                attr.ah_attr = ah_attributes(&path, port.port, is_roce, gid_index);
                attr.path_mtu = path.mtu.into();
                attr.dest_qp_num = remote_qpn;
                attr.rq_psn = rq_psn;
                attr.max_dest_rd_atomic = max_dest_rd_atomic;
            }
            Attributes::Rts {
                sq_psn,
                timeout,
                retry_count,
                rnr_retry_count,
                max_rd_atomic,
            } => {
                attr.qp_attr_mask = mask::STATE
                    | mask::SQ_PSN
                    | mask::TIMEOUT
                    | mask::RETRY_CNT
                    | mask::RNR_RETRY
                    | mask::MAX_QP_RD_ATOMIC;
                attr.sq_psn = sq_psn;
                attr.timeout = ack_timeout.unwrap_or(timeout);
                attr.retry_cnt = retry_count;
                attr.rnr_retry = rnr_retry_count;
                attr.max_rd_atomic = max_rd_atomic;
            }
        }
        Ok(attr)
    }
}

/// Sets what a queue pair needs before it is connected, whatever the state
/// (`cma_ib_init_qp_attr`).
fn without_connection(id: &mut Id, attr: &mut QpAttr) {
    attr.qp_attr_mask = mask::STATE | mask::PKEY_INDEX | mask::PORT;
    if id.is_datagram() {
        attr.qp_attr_mask |= mask::QKEY;
        attr.qkey = *id.qkey.get_or_insert(UDP_QKEY);
    } else {
        attr.qp_attr_mask |= mask::ACCESS_FLAGS;
    }
    if attr.qp_state == state::RTR {
        attr.rq_psn = id.psn;
    }
}

/// Returns the address of a peer. On InfiniBand it has no global route header
/// unless the path leaves the subnet.
pub(super) fn ah_attributes(path: &Path, port: u8, is_roce: bool, gid_index: u8) -> AhAttr {
    let is_global = is_roce || path.hop_limit > 1;
    let mut attr = AhAttr::new_zeroed();
    attr.dlid = path.dlid;
    attr.sl = path.sl;
    attr.port_num = port;
    attr.is_global = is_global.into();
    if is_global {
        attr.dgid = path.dgid;
        attr.flow_label = path.flow_label;
        attr.sgid_index = gid_index;
        attr.hop_limit = path.hop_limit;
        attr.traffic_class = path.traffic_class;
    }
    attr
}
