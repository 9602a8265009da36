//! The limits this device publishes and enforces, in one place: the kernel
//! face answers them, the NIC refuses what exceeds them. [`Limits`] makes a
//! device that can do less.

mod profiles;
mod text;

pub use profiles::{PROFILES, Profile};
pub use text::LimitsError;

/// Largest work queue, in requests (and in 64-byte blocks for send queues).
pub const MAX_WR: u32 = 32_768;
/// Most CQEs of one CQ.
pub const MAX_CQE: u32 = (1 << 22) - 1;
/// Longest time an event may be held back, in microseconds (12 bits).
pub const MAX_CQ_PERIOD: u16 = 0xfff;
/// Most completions an event may be held back for.
pub const MAX_CQ_COUNT: u16 = 0xffff;
/// Most receives of one SRQ.
pub const MAX_SRQ_WR: u32 = 32_767;
/// Most segments of a request.
pub const MAX_SGE: u32 = 30;
/// Most segments of an SRQ request.
pub const MAX_SRQ_SGE: u32 = 31;
/// Largest send WQE, bytes.
pub const MAX_SQ_DESC: u32 = 1024;
/// Largest receive WQE, bytes.
pub const MAX_RQ_DESC: u32 = 512;
/// QPs of one process (its slot's share of the 24-bit number space).
pub const MAX_QP: u32 = 65_535;
/// CQs of one process.
pub const MAX_CQ: u32 = 65_535;
/// SRQs of one process.
pub const MAX_SRQ: u32 = 65_535;
/// Memory regions and windows of one process.
pub const MAX_MR: u32 = 1 << 20;
/// Protection domains of one process.
pub const MAX_PD: u32 = 32_768;
/// RDMA reads and atomics outstanding per QP, each direction.
pub const MAX_RD_ATOMIC: u8 = 16;
/// Largest message, bytes (2^30).
pub const MAX_MSG: u32 = 1 << 30;
/// Processes on one fabric; a QP number's upper 8 bits are the process' slot, from 1.
pub const MAX_PROCESSES: u32 = 64;
/// Bytes of one BlueFlame register (two halves of 256).
pub const BF_REG_SIZE: u32 = 512;
/// Offset of the first register in a UAR page.
pub const BF_OFFSET: u32 = 0x800;
/// Offset of the CQ arm doorbell in a UAR page.
pub const CQ_ARM_OFFSET: u32 = 0x20;
/// Entries of a port's GID table. In use are the first, and on RoCE the second.
pub const GID_TABLE: u32 = 8;

/// Most inline data of one request, bytes: what is left of the largest send
/// WQE behind the control segment and the header of the data.
pub const MAX_INLINE: u32 = MAX_SQ_DESC - 16 - 4;

/// What a device can do. The default is all that this one can; fields named as
/// in `ibv_device_attr` are what `ibv_query_device` tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// QPs of one process.
    pub max_qp: u32,
    /// Requests of a send or a receive queue.
    pub max_qp_wr: u32,
    /// Segments of a request, in both directions.
    pub max_sge: u32,
    /// Segments of an RDMA read.
    pub max_sge_rd: u32,
    /// CQs of one process.
    pub max_cq: u32,
    /// Completions of one CQ.
    pub max_cqe: u32,
    /// Memory regions of one process.
    pub max_mr: u32,
    /// Bytes of one memory region.
    pub max_mr_size: u64,
    /// Protection domains of one process.
    pub max_pd: u32,
    /// RDMA reads and atomics that a QP may have outstanding as their target.
    pub max_qp_rd_atom: u32,
    /// RDMA reads and atomics that a QP may have outstanding as their initiator.
    pub max_qp_init_rd_atom: u32,
    /// Memory windows of one process; with 0 the device has none.
    pub max_mw: u32,
    /// SRQs of one process; with 0 the device has none.
    pub max_srq: u32,
    /// Receives of an SRQ.
    pub max_srq_wr: u32,
    /// Segments of an SRQ's receive.
    pub max_srq_sge: u32,
    /// Bytes of inline data of one request.
    pub max_inline: u32,
    /// CQs can be resized.
    pub resizes_cqs: bool,
    /// Remote atomics exist.
    pub has_atomics: bool,
}

impl Limits {
    /// All that this device can do.
    pub const DEVICE: Self = Self {
        max_qp: MAX_QP,
        max_qp_wr: MAX_WR,
        max_sge: MAX_SGE,
        max_sge_rd: MAX_SGE,
        max_cq: MAX_CQ,
        max_cqe: MAX_CQE,
        max_mr: MAX_MR,
        max_mr_size: u64::MAX,
        max_pd: MAX_PD,
        max_qp_rd_atom: MAX_RD_ATOMIC as u32,
        max_qp_init_rd_atom: MAX_RD_ATOMIC as u32,
        max_mw: MAX_MR,
        max_srq: MAX_SRQ,
        max_srq_wr: MAX_SRQ_WR,
        max_srq_sge: MAX_SRQ_SGE,
        max_inline: MAX_INLINE,
        resizes_cqs: true,
        has_atomics: true,
    };

    /// Whether there are shared receive queues.
    #[must_use]
    pub fn has_srqs(&self) -> bool {
        self.max_srq > 0
    }

    /// Whether there are memory windows.
    #[must_use]
    pub fn has_windows(&self) -> bool {
        self.max_mw > 0
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEVICE
    }
}
