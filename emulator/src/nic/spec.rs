//! The vocabulary between the kernel face (`uverbs`) and the NIC (`nic`).
//!
//! `uverbs` parses what libibverbs sends and calls the methods of
//! [`super::Nic`] with these values; the NIC never sees a uverbs byte.
//! Addresses are virtual addresses of this process: an emulated NIC reads
//! its host's memory directly.

/// A kernel error number, as the command would answer it (`EINVAL`, …).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

/// What a command answers.
pub type Result<T> = core::result::Result<T, Errno>;

/// One `ibv_open_device` of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContextId(pub u32);
/// A protection domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PdId(pub u32);
/// A completion channel (owned by `uverbs`; the NIC only names it).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChannelId(pub u32);
/// A CQ number, never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Cqn(pub u32);
/// An SRQ number, never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Srqn(pub u32);
/// A QP number: 24 bits, unique on the fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Qpn(pub u32);

/// A 4 KiB doorbell page (UAR) of a context, by its page index in the
/// context's mapping (the command descriptor's memory file).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UarPage {
    /// Whose page.
    pub context: ContextId,
    /// Page index in the command descriptor's memory file.
    pub page: u32,
}

/// A doorbell register: a page and the byte offset of the register in it
/// (0x800 or 0xa00 for the two that libmlx5 uses).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Register {
    /// The page.
    pub page: UarPage,
    /// Offset of the register's first half; the second lies 0x100 further.
    pub offset: u16,
}

/// A store seen on a doorbell page: the 8 bytes at `offset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UarWrite {
    /// The page.
    pub page: UarPage,
    /// Byte offset in the page: 0x20 for a CQ arm, else a half of a register.
    pub offset: u16,
    /// The bytes stored, in memory order.
    pub bytes: [u8; 8],
}

/// Whether every doorbell is seen, or only that a register was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DoorbellView {
    /// The NIC steps after every store: each doorbell is checked exactly.
    Exact,
    /// A NIC thread may miss a store that the next one overwrote: a write on
    /// a register starts the scan of the records of the QPs on that register.
    Register,
    /// `--lenient`: doorbell records alone start work.
    Records,
}

/// A new completion queue.
#[derive(Clone, Copy, Debug)]
pub struct CqSpec {
    /// Owner.
    pub context: ContextId,
    /// Address of the ring.
    pub buf: u64,
    /// Address of the doorbell record pair {consumer index, arm word}.
    pub dbrec: u64,
    /// Number of CQEs, a power of two.
    pub cqe_count: u32,
    /// 64 or 128.
    pub cqe_size: u32,
    /// Where completion events go.
    pub channel: Option<ChannelId>,
    /// libibverbs' own handle, returned in events.
    pub user_handle: u64,
    /// The page on which libmlx5 arms this CQ (offset 0x20).
    pub uar: UarPage,
    /// Completions are written whether there is room or not: whoever asks for
    /// that knows that there is.
    pub ignore_overrun: bool,
}

/// Frequency of the device's clock in kHz: that of a ConnectX-5, as `hca_core_clock`
/// of `ibv_devinfo -v` tells it. A tick is 12.8 ns.
pub const CLOCK_KHZ: u64 = 78_125;

/// The same moment by two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WallClock {
    /// The device's, in ticks as in completions.
    pub device: u64,
    /// The time of day, in nanoseconds since 1970.
    pub nanoseconds: u64,
}

/// The ring that a completion queue moves to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CqBuffer {
    /// Address of the ring.
    pub buf: u64,
    /// Number of CQEs, a power of two.
    pub cqe_count: u32,
    /// 64 or 128; must be what it was.
    pub cqe_size: u32,
}

/// A new shared receive queue.
#[derive(Clone, Copy, Debug)]
pub struct SrqSpec {
    /// Owner.
    pub context: ContextId,
    /// Protection of the receive buffers.
    pub pd: PdId,
    /// Address of the ring.
    pub buf: u64,
    /// Address of the doorbell record.
    pub dbrec: u64,
    /// Number of WQEs, a power of two (one more than may be posted).
    pub wqe_count: u32,
    /// log2 of the bytes from one WQE to the next.
    pub stride_log2: u32,
    /// Initial limit; 0 is unarmed.
    pub limit: u32,
    /// libibverbs' own handle, returned in events.
    pub user_handle: u64,
    /// The SRQ's user index (CQE version 1 reports the QP's instead, for RC).
    pub user_index: u32,
}

/// Transport service of a QP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
}

/// A new queue pair.
#[derive(Clone, Copy, Debug)]
pub struct QpSpec {
    /// Owner.
    pub context: ContextId,
    /// Protection of everything but SRQ buffers.
    pub pd: PdId,
    /// Transport service.
    pub service: Service,
    /// CQ of send completions.
    pub send_cq: Cqn,
    /// CQ of receive completions.
    pub recv_cq: Cqn,
    /// Receives come from here instead of the QP's own queue.
    pub srq: Option<Srqn>,
    /// Address of the receive ring.
    pub rq_buf: u64,
    /// Number of receive WQEs, a power of two or 0.
    pub rq_wqe_count: u32,
    /// log2 of the receive WQE's bytes.
    pub rq_stride_log2: u32,
    /// Address of the send ring.
    pub sq_buf: u64,
    /// Send ring length in 64-byte WQEBBs, a power of two or 0.
    pub sq_wqebb_count: u32,
    /// Address of the doorbell record pair {receive, send}.
    pub dbrec: u64,
    /// The register that starts this QP's sends. The ioctl interface names a
    /// page only (`MLX5_QP_FLAG_UAR_PAGE_INDEX`), as the QP context of the
    /// hardware does: then the offset is that of the first register, and any
    /// register of the page starts the QP's sends.
    pub register: Register,
    /// The user index reported in CQEs of version 1.
    pub user_index: u32,
    /// CQE version agreed with the context: 0 or 1.
    pub cqe_version: u8,
    /// Answers to signalled reads and atomics may be delivered inside their
    /// CQE. The driver asks for it where software posts every request
    /// signalled, or takes that upon itself.
    pub scatter_answers: bool,
    /// Small receives may be delivered inside their CQE: 32 bytes, or 64 in a
    /// CQE of 128.
    pub scatter_to_cqe: bool,
    /// Receive WQEs begin with a signature segment (`MLX5_QP_SIGNATURE=1`).
    pub wq_signature: bool,
    /// libibverbs' own handle, returned in events.
    pub user_handle: u64,
}

/// Values of `enum ibv_qp_state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QpState {
    /// RESET (0).
    Reset,
    /// INIT (1).
    Init,
    /// Ready to receive (2).
    Rtr,
    /// Ready to send (3).
    Rts,
    /// Send queue drained (4).
    Sqd,
    /// Send queue error (5).
    Sqe,
    /// Error (6).
    Err,
}

bitflags::bitflags! {
    /// `enum ibv_access_flags` of memory regions and QPs.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct Access: u32 {
        /// The NIC may write locally.
        const LOCAL_WRITE = 1;
        /// Peers may write.
        const REMOTE_WRITE = 2;
        /// Peers may read.
        const REMOTE_READ = 4;
        /// Peers may use atomics.
        const REMOTE_ATOMIC = 8;
        /// Windows may be bound to it.
        const MW_BIND = 16;
        /// Addresses count from 0.
        const ZERO_BASED = 32;
        /// Pages are pinned when they are used; the kernel face refuses it.
        const ON_DEMAND = 64;
        /// Accepted and without effect here.
        const HUGETLB = 128;
        /// Accepted and without effect here.
        const RELAXED_ORDERING = 1 << 20;
    }
}

/// Attributes of a QP that modify sets and query returns (`struct ib_uverbs_qp_attr`,
/// `IBV_QP_*` masks). `mask` says which fields a modify carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QpAttr {
    /// `IBV_QP_*` bits.
    pub mask: u32,
    /// New state (`IBV_QP_STATE`).
    pub state: u8,
    /// State the caller believes in (`IBV_QP_CUR_STATE`).
    pub cur_state: u8,
    /// `enum ibv_mtu` code: 1 = 256 … 5 = 4096.
    pub path_mtu: u8,
    /// 1 armed, 2 rearm, 0 migrated.
    pub path_mig_state: u8,
    /// UD key.
    pub qkey: u32,
    /// PSN expected from the peer.
    pub rq_psn: u32,
    /// First PSN sent.
    pub sq_psn: u32,
    /// Peer's QP number.
    pub dest_qpn: u32,
    /// Remote access allowed by this QP.
    pub access: Access,
    /// Key index.
    pub pkey_index: u16,
    /// RDMA reads and atomics outstanding as requester.
    pub max_rd_atomic: u8,
    /// RDMA reads and atomics outstanding as responder.
    pub max_dest_rd_atomic: u8,
    /// RNR timer code 0..31 sent in our RNR NAKs (IBA table 45).
    pub min_rnr_timer: u8,
    /// Port, from 1.
    pub port: u8,
    /// Ack timeout code: 4.096 µs × 2^code, 0 = none.
    pub timeout: u8,
    /// Transport retries, 0..7.
    pub retry_count: u8,
    /// RNR retries, 7 = for ever.
    pub rnr_retry: u8,
    /// Primary path.
    pub path: Path,
    /// Alternate path (kept, never used).
    pub alt_path: Path,
    /// Alternate port.
    pub alt_port: u8,
    /// Alternate key index.
    pub alt_pkey_index: u16,
    /// Alternate timeout code.
    pub alt_timeout: u8,
}

/// An address vector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Path {
    /// Destination GID.
    pub dgid: [u8; 16],
    /// Flow label.
    pub flow_label: u32,
    /// Destination LID.
    pub dlid: u16,
    /// Our GID index.
    pub sgid_index: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Traffic class.
    pub traffic_class: u8,
    /// Service level.
    pub sl: u8,
    /// Source path bits.
    pub src_path_bits: u8,
    /// Static rate.
    pub static_rate: u8,
    /// A global route header is used.
    pub is_global: bool,
    /// Port of the path.
    pub port: u8,
    /// Destination's Ethernet address, where software names it: in the
    /// address vectors of datagrams.
    pub dmac: Option<[u8; 6]>,
}

/// A new memory region.
#[derive(Clone, Copy, Debug)]
pub struct MrSpec {
    /// Owner.
    pub context: ContextId,
    /// Protection domain.
    pub pd: PdId,
    /// Start, as mapped in this process.
    pub start: u64,
    /// Length in bytes.
    pub length: u64,
    /// The address peers use for `start`.
    pub hca_va: u64,
    /// Rights.
    pub access: Access,
}

/// Keys of a memory region (equal on this device).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MrKeys {
    /// Handle for destroy.
    pub handle: u32,
    /// Local key.
    pub lkey: u32,
    /// Remote key.
    pub rkey: u32,
}

/// How a memory window is bound (`enum ibv_mw_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowType {
    /// By a bind that may replace another; belongs to a protection domain.
    One,
    /// By a bind of a free window; belongs to the binding queue pair.
    Two,
}

/// A new memory window.
#[derive(Clone, Copy, Debug)]
pub struct MwSpec {
    /// Owner.
    pub context: ContextId,
    /// Protection domain.
    pub pd: PdId,
    /// Type.
    pub kind: WindowType,
}

/// What a memory window is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MwKeys {
    /// Handle for destroy.
    pub handle: u32,
    /// Remote key, until the first bind.
    pub rkey: u32,
}

/// What an asynchronous event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AsyncObject {
    /// A CQ, by its user handle.
    Cq(u64),
    /// A QP, by its user handle.
    Qp(u64),
    /// An SRQ, by its user handle.
    Srq(u64),
    /// A port, by number.
    Port(u8),
    /// The device.
    Device,
}

/// `enum ibv_event_type` values this NIC produces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum AsyncEvent {
    /// CQ overrun.
    CqErr = 0,
    /// QP went to error on its own.
    QpFatal = 1,
    /// Invalid request on the responder side.
    QpReqErr = 2,
    /// Access violation on the responder side.
    QpAccessErr = 3,
    /// First packet arrived in RTR.
    CommEst = 4,
    /// Send queue drained.
    SqDrained = 5,
    /// Device failed.
    DeviceFatal = 8,
    /// Port up.
    PortActive = 9,
    /// Port down.
    PortErr = 10,
    /// SRQ failed.
    SrqErr = 14,
    /// SRQ went below its limit.
    SrqLimitReached = 15,
    /// The last receive of a QP in error was consumed.
    QpLastWqeReached = 16,
    /// GID table changed.
    GidChange = 18,
}

/// Where the NIC delivers events; `uverbs` implements it over pipes.
pub trait EventSink: Send {
    /// A completion event for the CQ with this user handle.
    fn completion(&self, channel: ChannelId, cq: Cqn, cq_user_handle: u64);
    /// An asynchronous event for a context.
    fn asynchronous(&self, context: ContextId, event: AsyncEvent, object: AsyncObject);
}

/// What a port is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortIdentity {
    /// LID; 0 on an Ethernet link.
    pub lid: u16,
    /// GIDs at index 0 and 1, as far as there are any; the second is an
    /// IPv4-mapped one.
    pub gids: [Option<[u8; 16]>; 2],
    /// The link is Ethernet with RoCE v2: address vectors of datagrams lead by
    /// GID, and every packet has a network header.
    pub ethernet: bool,
}

impl PortIdentity {
    /// The GID at an index of the port's table.
    #[must_use]
    pub fn gid(&self, index: u8) -> Option<[u8; 16]> {
        *self.gids.get(usize::from(index))?
    }

    /// The type of the network header of what leaves under the GID at an
    /// index, as a ConnectX reports it (`MLX5_CQE_ROCE_L3_HEADER_TYPE_*`):
    /// that of IPv6 or of IPv4.
    #[must_use]
    pub fn network(&self, index: u8) -> u8 {
        const IPV6: u8 = 1;
        const IPV4: u8 = 2;
        if index == 0 { IPV6 } else { IPV4 }
    }
}

/// Where on the fabric a port is: the device's index, from 0, and its port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PortAddress {
    /// Device index on the fabric.
    pub device: u8,
    /// Port, from 1.
    pub port: u8,
}
