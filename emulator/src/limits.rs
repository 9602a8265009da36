//! The limits this device publishes and enforces, in one place: the kernel
//! face answers them, the NIC refuses what exceeds them.

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
