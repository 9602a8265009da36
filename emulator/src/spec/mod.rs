//! The types with which the kernel commands (`uverbs`) call the NIC ([`crate::nic`]), and
//! those that all modules share: ports, page stores, time.
//!
//! `uverbs` parses the commands of libibverbs and calls the methods of
//! [`Nic`](crate::nic::Nic) with these values; the NIC does not use the uverbs formats.
//! Addresses are virtual addresses of this process, since an emulated NIC
//! accesses the memory of its host directly.

pub mod gid;
mod port;

pub use port::{Link, PortAddress, PortIdentity, PortSet, network};

/// Monotonic time in nanoseconds, with any origin.
pub type Nanos = u64;

/// Reads a time: a number with ns, us, ms or s behind it.
pub(crate) fn nanoseconds(text: &str) -> Option<Nanos> {
    let digits = text.find(|it: char| !it.is_ascii_digit())?;
    let unit = match &text[digits..] {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return None,
    };
    text[..digits].parse::<Nanos>().ok()?.checked_mul(unit)
}

/// A kernel error number as a command returns it (`EINVAL`, …).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

/// The result of a command.
pub type Result<T> = core::result::Result<T, Errno>;

/// A device context: one `ibv_open_device` of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContextId(pub u32);
/// A protection domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PdId(pub u32);
/// A completion channel. It belongs to `uverbs`; the NIC only passes its number.
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

/// A 4 KiB doorbell page (UAR) of a context, by its page index in the context's
/// memory file (the command descriptor's).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UarPage {
    /// The context that owns the page.
    pub context: ContextId,
    /// Page index in the command descriptor's memory file.
    pub page: u32,
}

/// A doorbell register: a page and the byte offset of the register in it (0x800
/// or 0xa00 for the two that libmlx5 uses).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Register {
    /// The page.
    pub page: UarPage,
    /// Offset of the register's first buffer; the second is 0x100 behind it.
    pub offset: u16,
}

/// A store to a doorbell page: the 8 bytes at `offset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UarWrite {
    /// The page.
    pub page: UarPage,
    /// Byte offset in the page: 0x20 for a CQ arm, otherwise a BlueFlame buffer.
    pub offset: u16,
    /// The bytes stored, in memory order.
    pub bytes: [u8; 8],
    /// The 8 bytes behind them, if some of the next 56 were stored too, as by a BlueFlame
    /// copy. They may be those of an earlier copy; `None` if the store was trapped.
    pub copy: Option<[u8; 8]>,
}

/// How doorbells are observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DoorbellView {
    /// The NIC runs after every store, and checks each doorbell exactly.
    Exact,
    /// The NIC thread may miss a store that the next one overwrites. A store to a
    /// register starts a scan of the doorbell records of the QPs of that register.
    Register,
    /// `--lenient`: doorbell records alone start work.
    Records,
}

/// The attributes of a new CQ.
#[derive(Clone, Copy, Debug)]
pub struct CqSpec {
    /// The context that owns the CQ.
    pub context: ContextId,
    /// Address of the ring.
    pub buf: u64,
    /// Address of the doorbell record pair {consumer index, arm word}.
    pub dbrec: u64,
    /// Number of CQEs, a power of two.
    pub cqe_count: u32,
    /// Size of a CQE in bytes: 64 or 128.
    pub cqe_size: u32,
    /// The channel for completion events.
    pub channel: Option<ChannelId>,
    /// libibverbs' own handle, returned in events.
    pub user_handle: u64,
    /// The page on which libmlx5 arms this CQ (at offset 0x20).
    pub uar: UarPage,
    /// Whether completions are written even if the ring is full. Software then
    /// ensures that there is room.
    pub ignore_overrun: bool,
}

/// Frequency of the device's clock in kHz, that of a ConnectX-5 (`hca_core_clock` of
/// `ibv_devinfo -v`). A tick is 12.8 ns.
pub const CLOCK_KHZ: u64 = 78_125;

/// One moment by two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WallClock {
    /// The device's clock, in ticks as in CQEs.
    pub device: u64,
    /// The time of day, in nanoseconds since 1970.
    pub nanoseconds: u64,
}

/// The new ring of a CQ that is resized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CqBuffer {
    /// Address of the ring.
    pub buf: u64,
    /// Number of CQEs, a power of two.
    pub cqe_count: u32,
    /// Size of a CQE in bytes: 64 or 128; must be the same as before.
    pub cqe_size: u32,
}

/// The attributes of a new SRQ.
#[derive(Clone, Copy, Debug)]
pub struct SrqSpec {
    /// The context that owns the SRQ.
    pub context: ContextId,
    /// Protection domain of the receive buffers.
    pub pd: PdId,
    /// Address of the ring.
    pub buf: u64,
    /// Address of the doorbell record.
    pub dbrec: u64,
    /// Number of WQEs, a power of two (one more than can be posted).
    pub wqe_count: u32,
    /// log2 of the distance between WQEs in bytes.
    pub stride_log2: u32,
    /// Initial SRQ limit; 0 means not armed.
    pub limit: u32,
    /// libibverbs' own handle, returned in events.
    pub user_handle: u64,
    /// The SRQ's user index (for RC, CQE version 1 reports the QP's instead).
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

/// The attributes of a new QP.
#[derive(Clone, Copy, Debug)]
pub struct QpSpec {
    /// The context that owns the QP.
    pub context: ContextId,
    /// Protection domain of everything except SRQ buffers.
    pub pd: PdId,
    /// Transport service.
    pub service: Service,
    /// CQ of send completions.
    pub send_cq: Cqn,
    /// CQ of receive completions.
    pub recv_cq: Cqn,
    /// The SRQ that provides receives instead of the QP's own receive queue.
    pub srq: Option<Srqn>,
    /// Address of the receive ring.
    pub rq_buf: u64,
    /// Number of receive WQEs, a power of two or 0.
    pub rq_wqe_count: u32,
    /// log2 of the size of a receive WQE in bytes.
    pub rq_stride_log2: u32,
    /// Address of the send ring.
    pub sq_buf: u64,
    /// Length of the send ring in WQEBBs of 64 bytes, a power of two or 0.
    pub sq_wqebb_count: u32,
    /// Address of the doorbell record pair {receive, send}.
    pub dbrec: u64,
    /// The register to which this QP's send doorbells are stored. The ioctl interface names
    /// only a page (`MLX5_QP_FLAG_UAR_PAGE_INDEX`), as the QP context of the
    /// hardware does. The offset is then that of the first register, and any
    /// register of the page is accepted.
    pub register: Register,
    /// The user index reported in CQEs of version 1.
    pub user_index: u32,
    /// CQE version negotiated with the context: 0 or 1.
    pub cqe_version: u8,
    /// Whether responses to signalled reads and atomics may be scattered to their
    /// CQE. The driver requests this if software posts every request signalled or
    /// takes responsibility for it.
    pub scatter_responses: bool,
    /// Whether small receives may be scattered to their CQE: up to 32 bytes, or 64
    /// in a CQE of 128 bytes.
    pub scatter_to_cqe: bool,
    /// Whether receive WQEs begin with a signature segment (`MLX5_QP_SIGNATURE=1`).
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
        /// The NIC may write.
        const LOCAL_WRITE = 1;
        /// Peers may write.
        const REMOTE_WRITE = 2;
        /// Peers may read.
        const REMOTE_READ = 4;
        /// Peers may use atomics.
        const REMOTE_ATOMIC = 8;
        /// Memory windows may be bound to the region.
        const MW_BIND = 16;
        /// Addresses start at 0.
        const ZERO_BASED = 32;
        /// On-demand paging; refused by the kernel commands.
        const ON_DEMAND = 64;
        /// Accepted, without effect.
        const HUGETLB = 128;
        /// Accepted, without effect.
        const RELAXED_ORDERING = 1 << 20;
    }
}

/// QP attributes of modify and query (`struct ib_uverbs_qp_attr`, `IBV_QP_*` masks).
/// `mask` selects the fields that a modify contains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QpAttr {
    /// `IBV_QP_*` bits.
    pub mask: u32,
    /// New state (`IBV_QP_STATE`).
    pub state: u8,
    /// Expected current state (`IBV_QP_CUR_STATE`).
    pub cur_state: u8,
    /// `enum ibv_mtu` code: 1 = 256 … 5 = 4096.
    pub path_mtu: u8,
    /// 1 armed, 2 rearm, 0 migrated.
    pub path_mig_state: u8,
    /// Queue key of a UD QP.
    pub qkey: u32,
    /// Next PSN expected from the peer.
    pub rq_psn: u32,
    /// PSN of the first packet sent.
    pub sq_psn: u32,
    /// Peer's QP number.
    pub dest_qpn: u32,
    /// Remote access that this QP allows.
    pub access: Access,
    /// P_Key index.
    pub pkey_index: u16,
    /// Maximum number of outstanding RDMA reads and atomics as requester.
    pub max_rd_atomic: u8,
    /// Maximum number of outstanding RDMA reads and atomics as responder.
    pub max_dest_rd_atomic: u8,
    /// RNR timer code 0..31 in sent RNR NAKs (IBA table 45).
    pub min_rnr_timer: u8,
    /// Port, from 1.
    pub port: u8,
    /// Ack timeout code: 4.096 µs × 2^code, 0 = none.
    pub timeout: u8,
    /// Number of transport retries, 0..7.
    pub retry_count: u8,
    /// Number of RNR retries; 7 means unlimited.
    pub rnr_retry: u8,
    /// Primary path.
    pub path: Path,
    /// Alternate path (stored, never used).
    pub alt_path: Path,
    /// Alternate port.
    pub alt_port: u8,
    /// Alternate P_Key index.
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
    /// Source GID index.
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
    /// Whether packets carry a global route header.
    pub is_global: bool,
    /// Source port.
    pub port: u8,
    /// Destination's MAC address, where the address vector contains it: for
    /// datagrams.
    pub dmac: Option<[u8; 6]>,
}

/// The attributes of a new memory region.
#[derive(Clone, Copy, Debug)]
pub struct MrSpec {
    /// The context that owns the region.
    pub context: ContextId,
    /// Protection domain.
    pub pd: PdId,
    /// Start address in this process.
    pub start: u64,
    /// Length in bytes.
    pub length: u64,
    /// The address that peers use for `start`.
    pub hca_va: u64,
    /// Access flags.
    pub access: Access,
}

/// The keys of a memory region (lkey and rkey are equal on this device).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MrKeys {
    /// Handle for deregistration.
    pub handle: u32,
    /// Local key.
    pub lkey: u32,
    /// Remote key.
    pub rkey: u32,
}

/// The type of a memory window (`enum ibv_mw_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowType {
    /// Type 1: may be rebound while bound; belongs to a protection domain.
    One,
    /// Type 2: bound while free; belongs to the QP that binds it.
    Two,
}

/// The attributes of a new memory window.
#[derive(Clone, Copy, Debug)]
pub struct MwSpec {
    /// The context that owns the window.
    pub context: ContextId,
    /// Protection domain.
    pub pd: PdId,
    /// Type.
    pub kind: WindowType,
}

/// The keys of a memory window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MwKeys {
    /// Handle for deallocation.
    pub handle: u32,
    /// Remote key until the first bind.
    pub rkey: u32,
}

/// The object of an asynchronous event.
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

/// The values of `enum ibv_event_type` that this NIC generates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum AsyncEvent {
    /// CQ overrun.
    CqErr = 0,
    /// A QP has failed, and no completion reports it.
    QpFatal = 1,
    /// Invalid request on the responder side.
    QpReqErr = 2,
    /// Access violation on the responder side.
    QpAccessErr = 3,
    /// First packet arrived in RTR (communication established).
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
    /// SRQ fell below its limit.
    SrqLimitReached = 15,
    /// The last receive of a QP in error was consumed.
    QpLastWqeReached = 16,
    /// GID table changed.
    GidChange = 18,
}

/// Receives the NIC's events. `uverbs` implements it with pipes.
pub trait EventSink: Send {
    /// Delivers a completion event for the CQ with this user handle.
    fn completion(&self, channel: ChannelId, cq: Cqn, cq_user_handle: u64);
    /// Delivers an asynchronous event to a context.
    fn asynchronous(&self, context: ContextId, event: AsyncEvent, object: AsyncObject);
    /// Explains a failure, or a violation of the device's contract, if the user wants
    /// explanations.
    fn explain(&self, text: &str);
    /// Reports a fault that the user must know of.
    fn warn(&self, text: &str);
}
