//! The limits that the emulated device reports and enforces. The uverbs
//! commands report them, and the NIC refuses what exceeds them. [`Limits`]
//! describes a device with lower limits.

mod profiles;
mod text;

pub use profiles::{PROFILES, Profile};
pub use text::LimitsError;

/// Maximum number of requests of a work queue, and of WQEBBs (64-byte units) of a
/// send queue.
pub const MAX_WR: u32 = 32_768;
/// Maximum number of CQEs of one CQ.
pub const MAX_CQE: u32 = (1 << 22) - 1;
/// Maximum CQ moderation period in microseconds (12 bits).
pub const MAX_CQ_PERIOD: u16 = 0xfff;
/// Maximum CQ moderation count.
pub const MAX_CQ_COUNT: u16 = 0xffff;
/// Maximum number of receives of one SRQ.
pub const MAX_SRQ_WR: u32 = 32_767;
/// Maximum number of segments of a request.
pub const MAX_SGE: u32 = 30;
/// Maximum number of segments of an SRQ receive.
pub const MAX_SRQ_SGE: u32 = 31;
/// Maximum size of a send WQE in bytes.
pub const MAX_SQ_DESC: u32 = 1024;
/// Maximum size of a receive WQE in bytes.
pub const MAX_RQ_DESC: u32 = 512;
/// Maximum number of QPs of one process (its share of the 24-bit QP numbers).
pub const MAX_QP: u32 = 65_535;
/// Maximum number of CQs of one process.
pub const MAX_CQ: u32 = 65_535;
/// Maximum number of SRQs of one process.
pub const MAX_SRQ: u32 = 65_535;
/// Maximum number of memory regions and windows of one process.
pub const MAX_MR: u32 = 1 << 20;
/// Maximum number of protection domains of one process.
pub const MAX_PD: u32 = 32_768;
/// Maximum number of outstanding RDMA reads and atomics per QP and direction.
pub const MAX_RD_ATOMIC: u8 = 16;
/// Maximum message size in bytes (2^30).
pub const MAX_MSG: u32 = 1 << 30;
/// Maximum number of devices on one fabric.
pub const MAX_DEVICES: u8 = 16;
/// Maximum number of ports of one device, the same as in libmlx5.
pub const MAX_PORTS: u8 = 2;
/// Maximum number of processes on one fabric. The upper 8 bits of a QP number are
/// the slot of its process, counted from 1.
pub const MAX_PROCESSES: u32 = 64;
/// Size of one BlueFlame register in bytes (two buffers of 256).
pub const BF_REG_SIZE: u32 = 512;
/// Offset of the first BlueFlame register in a UAR page.
pub const BF_OFFSET: u32 = 0x800;
/// Offset of the CQ arm doorbell in a UAR page.
pub const CQ_ARM_OFFSET: u32 = 0x20;
/// Number of entries of a port's GID table. The first is in use, on RoCE the first four.
pub const GID_TABLE: u32 = 8;

/// Maximum inline data of one request in bytes: the largest send WQE minus the
/// control segment and the inline segment header.
pub const MAX_INLINE: u32 = MAX_SQ_DESC - 16 - 4;

/// `enum ib_uverbs_device_cap_flags`: changes of a queue pair's port, port events, a system image GUID, RNR NAKs,
/// windows of type 1 and 2B, and (memory management) SEND with invalidate and local
/// invalidate.
const CAPABILITIES: u32 = 1 << 5 | 1 << 10 | 1 << 11 | 1 << 12 | WINDOWS | 1 << 21;
/// The capability flags for windows.
const WINDOWS: u32 = 1 << 17 | 1 << 24;

/// The limits of a device. The default is the maximum that the emulated device
/// supports. Fields named as in `ibv_device_attr` are what `ibv_query_device`
/// returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of QPs of one process.
    pub max_qp: u32,
    /// Maximum number of requests of a send or receive queue.
    pub max_qp_wr: u32,
    /// Maximum number of segments of a send or receive request.
    pub max_sge: u32,
    /// Maximum number of segments of an RDMA read.
    pub max_sge_rd: u32,
    /// Maximum number of CQs of one process.
    pub max_cq: u32,
    /// Maximum number of CQEs of one CQ.
    pub max_cqe: u32,
    /// Maximum number of memory regions of one process.
    pub max_mr: u32,
    /// Maximum size of one memory region in bytes.
    pub max_mr_size: u64,
    /// Maximum number of protection domains of one process.
    pub max_pd: u32,
    /// Maximum number of RDMA reads and atomics outstanding at a QP as responder.
    pub max_qp_rd_atom: u32,
    /// Maximum number of RDMA reads and atomics outstanding at a QP as initiator.
    pub max_qp_init_rd_atom: u32,
    /// Maximum number of memory windows of one process; 0 if the device has none.
    pub max_mw: u32,
    /// Maximum number of SRQs of one process; 0 if the device has none.
    pub max_srq: u32,
    /// Maximum number of receives of an SRQ.
    pub max_srq_wr: u32,
    /// Maximum number of segments of an SRQ receive.
    pub max_srq_sge: u32,
    /// Maximum inline data of one request in bytes.
    pub max_inline: u32,
    /// Whether CQs can be resized.
    pub resizes_cqs: bool,
    /// Whether remote atomics are supported.
    pub has_atomics: bool,
}

impl Limits {
    /// The limits of the emulated device.
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

    /// Returns whether the device has shared receive queues.
    #[must_use]
    pub fn has_srqs(&self) -> bool {
        self.max_srq > 0
    }

    /// Returns whether the device has memory windows.
    #[must_use]
    pub fn has_windows(&self) -> bool {
        self.max_mw > 0
    }

    /// Returns the capability flags of the device.
    pub(crate) fn capabilities(&self) -> u32 {
        if self.has_windows() {
            CAPABILITIES
        } else {
            CAPABILITIES & !WINDOWS
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEVICE
    }
}
