//! Where the rings lie: the values that the control path passes to the data path.
//!
//! Plain values. For a device they come from `mlx5dv_init_obj` (`mlx5dv.h`:
//! `mlx5dv_qp`, `mlx5dv_cq`, `mlx5dv_srq`); a test fills them with ordinary memory.

use core::fmt;
use core::ptr::NonNull;

/// The layout of a ring contradicts itself; names the field and the rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayoutError(pub &'static str);

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the provider exported a ring that cannot be driven: {}",
            self.0
        )
    }
}

impl core::error::Error for LayoutError {}

/// The largest inline size that the rings support. A send WQE has up to 63
/// units of 16 bytes, of which the control segment and the remote address take
/// one each, and the header of inline data four bytes.
pub const LONGEST_INLINE: u32 = 61 * 16 - 4;

/// A send queue: `wqebb_count` blocks of 64 bytes (WQEBB). Begin with [`SendLayout::new`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct SendLayout {
    /// First byte of the ring.
    pub buf: NonNull<u8>,
    /// Ring length in 64-byte WQEBBs, a power of two.
    pub wqebb_count: u32,
    /// The send half of the QP's doorbell record (`dbrec[1]`, big endian, 16 bits used).
    pub dbrec: NonNull<u32>,
    /// The doorbell register of the QP.
    pub register: RegisterLayout,
    /// QP number, 24 bits.
    pub qpn: u32,
    /// The most requests that may be outstanding, as agreed at creation (`max_send_wr`).
    pub max_requests: u32,
    /// The most gather segments of one request (`max_send_sge`).
    pub max_segments: u32,
    /// The most inline bytes of one request (`max_inline_data`).
    pub max_inline: u32,
    /// Whether memory windows may be bound through it: there is room for as
    /// many WQEs of that kind as of any other.
    pub windows: bool,
    /// Whether the device has atomic operations.
    pub atomics: bool,
}

impl SendLayout {
    /// Returns the layout of a queue of requests of one segment, without inline data, windows and
    /// atomic operations, of which as many may be outstanding as the ring has blocks.
    #[must_use]
    pub const fn new(
        buf: NonNull<u8>,
        wqebb_count: u32,
        dbrec: NonNull<u32>,
        register: RegisterLayout,
        qpn: u32,
    ) -> Self {
        Self {
            buf,
            wqebb_count,
            dbrec,
            register,
            qpn,
            max_requests: wqebb_count,
            max_segments: 1,
            max_inline: 0,
            windows: false,
            atomics: false,
        }
    }
}

/// A doorbell (BlueFlame) register. Begin with [`RegisterLayout::new`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RegisterLayout {
    /// Address of the register; its other half lies `half_size` further.
    pub reg: NonNull<u8>,
    /// Size of one BlueFlame half in bytes; 0 if BlueFlame copies are not allowed here.
    pub half_size: u32,
    /// Whether only this QP rings the register (thread domain); BlueFlame
    /// copies are made only then.
    pub exclusive: bool,
}

impl RegisterLayout {
    /// Returns a register at this address that other QPs ring too, without BlueFlame copies.
    #[must_use]
    pub const fn new(reg: NonNull<u8>) -> Self {
        Self {
            reg,
            half_size: 0,
            exclusive: false,
        }
    }
}

/// A receive queue of one QP.
#[derive(Clone, Copy, Debug)]
pub struct RecvLayout {
    /// First byte of the ring.
    pub buf: NonNull<u8>,
    /// Number of WQEs, a power of two.
    pub wqe_count: u32,
    /// Bytes from one WQE to the next, a power of two, at least 16.
    pub stride: u32,
    /// The receive half of the QP's doorbell record (`dbrec[0]`).
    pub dbrec: NonNull<u32>,
}

/// A shared receive queue (linked list of WQEs).
#[derive(Clone, Copy, Debug)]
pub struct SharedRecvLayout {
    /// First byte of the ring.
    pub buf: NonNull<u8>,
    /// Bytes from one WQE to the next, a power of two, at least 32.
    pub stride: u32,
    /// First free WQE.
    pub head: u16,
    /// Last free WQE; the list never runs empty, so `tail - head` may be posted.
    pub tail: u16,
    /// The doorbell record (16-bit count of posts, big endian).
    pub dbrec: NonNull<u32>,
    /// SRQ number, 24 bits.
    pub srqn: u32,
}

/// A completion queue.
#[derive(Clone, Copy, Debug)]
pub struct CompletionLayout {
    /// First byte of the ring.
    pub buf: NonNull<u8>,
    /// Number of CQEs, a power of two.
    pub cqe_count: u32,
    /// 64 or 128; in a 128-byte CQE the hardware's 64 bytes are the second half.
    pub cqe_size: u32,
    /// `dbrec[0]` is the consumer index (24 bits), `dbrec[1]` the arm word.
    pub dbrec: NonNull<u32>,
    /// The context's CQ doorbell page; the arm doorbell is at offset 0x20.
    pub uar: NonNull<u8>,
    /// CQ number, 24 bits.
    pub cqn: u32,
}
