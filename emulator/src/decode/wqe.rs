//! WQEs as bytes: control, remote address and data segments of send WQEs, scatter
//! lists of receive WQEs, and the link of SRQ WQEs.

use super::address::AddressVector;
use super::umr::Umr;
use std::fmt;

/// Size of a WQEBB in bytes, the unit of the send ring.
pub const WQEBB: usize = 64;
/// Size of a segment in bytes, the unit of a WQE's length (`ds`).
pub const SEGMENT: usize = 16;
/// The key that ends a scatter list (`MLX5_INVALID_LKEY`).
pub const INVALID_LKEY: u32 = 0x100;
/// The bit of a data segment's byte count that marks inline data.
const INLINE: u32 = 0x8000_0000;
/// The length that a byte count of 0 means, except in the terminator.
const ZERO_MEANS: u32 = 1 << 31;

/// Opcodes of send WQEs (`MLX5_OPCODE_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Opcode {
    /// No operation; completes in order.
    Nop = 0x00,
    /// SEND with invalidate.
    SendInvalidate = 0x01,
    /// RDMA WRITE.
    Write = 0x08,
    /// RDMA WRITE with immediate.
    WriteImmediate = 0x09,
    /// SEND.
    Send = 0x0a,
    /// SEND with immediate.
    SendImmediate = 0x0b,
    /// RDMA READ.
    Read = 0x10,
    /// Compare and swap.
    AtomicCompareSwap = 0x11,
    /// Fetch and add.
    AtomicFetchAdd = 0x12,
    /// User-mode memory registration: binds and invalidates memory windows.
    Umr = 0x25,
}

impl Opcode {
    /// Returns whether the operation is atomic.
    #[must_use]
    pub fn is_atomic(self) -> bool {
        matches!(self, Self::AtomicCompareSwap | Self::AtomicFetchAdd)
    }

    /// Returns whether a remote address segment follows the control segment.
    fn has_remote(self) -> bool {
        matches!(self, Self::Write | Self::WriteImmediate | Self::Read) || self.is_atomic()
    }

    /// Returns the operation with this code, if the device supports it.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            0x00 => Self::Nop,
            0x01 => Self::SendInvalidate,
            0x08 => Self::Write,
            0x09 => Self::WriteImmediate,
            0x0a => Self::Send,
            0x0b => Self::SendImmediate,
            0x10 => Self::Read,
            0x11 => Self::AtomicCompareSwap,
            0x12 => Self::AtomicFetchAdd,
            0x25 => Self::Umr,
            _ => return None,
        })
    }
}

/// The control segment (`mlx5_wqe_ctrl_seg`), the first 16 bytes of a send WQE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control {
    /// Operation modifier.
    pub opmod: u8,
    /// WQEBB counter at the WQE's start, 16 bits.
    pub index: u16,
    /// Opcode as posted; see [`Opcode::from_code`].
    pub opcode: u8,
    /// QP number.
    pub qpn: u32,
    /// Length of the WQE in segments, including the control segment.
    pub segments: u8,
    /// Signature (not checked).
    pub signature: u8,
    /// Fence, completion and solicited bits as posted (`fm_ce_se`).
    pub flags: u8,
    /// Immediate data or key, in memory order.
    pub immediate: [u8; 4],
}

impl Control {
    /// The flag that requests a CQE on success (`MLX5_WQE_CTRL_CQ_UPDATE`).
    pub(crate) const CQ_UPDATE: u8 = 0x08;

    /// Parses a control segment.
    #[must_use]
    pub fn parse(bytes: &[u8; 16]) -> Self {
        let first = be32(bytes, 0);
        let second = be32(bytes, 4);
        Self {
            opmod: (first >> 24) as u8,
            index: (first >> 8) as u16,
            opcode: first as u8,
            qpn: second >> 8,
            segments: second as u8 & 0x3f,
            signature: bytes[8],
            flags: bytes[11],
            immediate: [bytes[12], bytes[13], bytes[14], bytes[15]],
        }
    }

    /// Returns the number of WQEBBs that the WQE occupies.
    #[must_use]
    pub fn wqebbs(&self) -> u16 {
        u16::from(self.segments).div_ceil(4)
    }

    /// Returns whether a CQE is requested on success.
    #[must_use]
    pub fn signalled(&self) -> bool {
        self.flags & Self::CQ_UPDATE != 0
    }

    /// Returns whether a solicited event is requested (`MLX5_WQE_CTRL_SOLICITED`).
    #[must_use]
    pub fn solicited(&self) -> bool {
        self.flags & 0x02 != 0
    }

    /// Returns the fence of the WQE.
    #[must_use]
    pub fn fence(&self) -> Fence {
        match self.flags >> 5 {
            0 => Fence::None,
            1 => Fence::Small,
            3 => Fence::Strong,
            // 2 is the fence alone, 4 with the small fence; the rest is reserved.
            _ => Fence::Reads,
        }
    }
}

/// What a WQE waits for before it starts (upper three bits of `fm_ce_se`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fence {
    /// Nothing.
    None,
    /// Earlier changes of memory keys (`MLX5_WQE_CTRL_INITIATOR_SMALL_FENCE`).
    Small,
    /// Earlier reads and atomics, and changes of keys (`MLX5_WQE_CTRL_FENCE`).
    Reads,
    /// All earlier WQEs.
    Strong,
}

/// Remote address segment (`mlx5_wqe_raddr_seg`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteAddress {
    /// Address at the responder.
    pub address: u64,
    /// Key at the responder.
    pub key: u32,
}

/// Atomic segment (`mlx5_wqe_atomic_seg`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Atomic {
    /// Value to swap in or to add.
    pub swap_add: u64,
    /// Value to compare with.
    pub compare: u64,
}

/// A data segment of a send or receive WQE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// Data elsewhere in memory (`mlx5_wqe_data_seg`).
    Pointer {
        /// Length in bytes; a posted 0 means 2^31.
        length: u32,
        /// Local key.
        key: u32,
        /// Address.
        address: u64,
    },
    /// Data inside the WQE.
    Inline {
        /// Offset of the first byte from the WQE's start.
        offset: u16,
        /// Length in bytes.
        length: u16,
    },
}

/// Errors in the bytes of a WQE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The length is below one control segment or ends inside a segment.
    Truncated,
    /// The operation code is unknown.
    Opcode(u8),
    /// Inline data extend beyond the WQE.
    InlineTooLong(u32),
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => write!(f, "the WQE ends inside a segment"),
            Self::Opcode(code) => write!(f, "unknown opcode {code:#04x}"),
            Self::InlineTooLong(bytes) => write!(f, "{bytes} inline bytes do not fit in the WQE"),
        }
    }
}

/// The segments of a send WQE after its control segment.
#[derive(Clone, Copy, Debug)]
pub struct Body<'a> {
    /// Operation.
    pub opcode: Opcode,
    /// Remote address; zeros for operations without one.
    pub remote: RemoteAddress,
    /// Operands, for atomics only.
    pub atomic: Option<Atomic>,
    /// Destination, for datagrams only.
    pub address: Option<AddressVector>,
    /// Change of a memory key, for [`Opcode::Umr`] only.
    pub umr: Option<Umr>,
    /// The data segments.
    pub data: DataSegments<'a>,
}

/// Parses a send WQE of a connected QP (RC, UC). `wqe` contains exactly the segments
/// that its control segment counts.
///
/// # Errors
/// Returns why the bytes cannot be parsed.
pub fn parse_connected(wqe: &[u8]) -> Result<(Control, Body<'_>), Malformed> {
    let control = Control::parse(wqe.first_chunk().ok_or(Malformed::Truncated)?);
    let opcode = Opcode::from_code(control.opcode).ok_or(Malformed::Opcode(control.opcode))?;
    let mut position = SEGMENT;
    let mut remote = RemoteAddress::default();
    let mut atomic = None;
    if opcode.has_remote() {
        let segment = segment(wqe, position)?;
        remote = RemoteAddress {
            address: be64(segment, 0),
            key: be32(segment, 8),
        };
        position += SEGMENT;
    }
    if opcode.is_atomic() {
        let segment = segment(wqe, position)?;
        atomic = Some(Atomic {
            swap_add: be64(segment, 0),
            compare: be64(segment, 8),
        });
        position += SEGMENT;
    }
    let umr = match opcode {
        Opcode::Umr => Some(Umr::parse(&wqe[SEGMENT..])?),
        _ => None,
    };
    // These have no data segments after the control segment.
    let data = match opcode {
        Opcode::Nop | Opcode::Umr => DataSegments {
            wqe: &wqe[..SEGMENT],
            position: SEGMENT,
        },
        _ => DataSegments { wqe, position },
    };
    Ok((
        control,
        Body {
            opcode,
            remote,
            atomic,
            address: None,
            umr,
            data,
        },
    ))
}

/// Parses a send WQE of a UD QP, with the address vector after the control segment.
/// Otherwise the same as [`parse_connected`].
///
/// # Errors
/// Returns why the bytes cannot be parsed.
pub fn parse_datagram(wqe: &[u8]) -> Result<(Control, Body<'_>), Malformed> {
    let control = Control::parse(wqe.first_chunk().ok_or(Malformed::Truncated)?);
    let opcode = Opcode::from_code(control.opcode).ok_or(Malformed::Opcode(control.opcode))?;
    let (address, data) = if opcode == Opcode::Nop {
        let wqe = &wqe[..SEGMENT];
        (
            None,
            DataSegments {
                wqe,
                position: SEGMENT,
            },
        )
    } else {
        let parsed = AddressVector::parse(&wqe[SEGMENT..]);
        let (address, length) = parsed.ok_or(Malformed::Truncated)?;
        let position = SEGMENT + length;
        (Some(address), DataSegments { wqe, position })
    };
    let body = Body {
        opcode,
        remote: RemoteAddress::default(),
        atomic: None,
        address,
        umr: None,
        data,
    };
    Ok((control, body))
}

/// Iterates over the data segments of a send WQE.
#[derive(Clone, Copy, Debug)]
pub struct DataSegments<'a> {
    wqe: &'a [u8],
    position: usize,
}

impl<'a> DataSegments<'a> {
    /// Returns the data segments of a WQE from a position on.
    #[must_use]
    pub fn at(wqe: &'a [u8], position: usize) -> Self {
        Self { wqe, position }
    }
}

impl Iterator for DataSegments<'_> {
    type Item = Result<Data, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.position >= self.wqe.len() {
            return None;
        }
        let at = self.position;
        let result = segment(self.wqe, at).and_then(|bytes| {
            let count = be32(bytes, 0);
            if count & INLINE == 0 {
                self.position += SEGMENT;
                return Ok(pointer(bytes));
            }
            // The 4-byte header and the data are padded together to 16 bytes.
            let length = count & !INLINE;
            let room = self.wqe.len() - at - 4;
            if length as usize > room {
                return Err(Malformed::InlineTooLong(length));
            }
            self.position += (4 + length as usize).next_multiple_of(SEGMENT);
            Ok(Data::Inline {
                offset: (at + 4) as u16,
                length: length as u16,
            })
        });
        if result.is_err() {
            self.position = self.wqe.len();
        }
        Some(result)
    }
}

/// Iterates over the scatter list of a receive WQE, up to its terminator or end.
#[derive(Clone, Copy, Debug)]
pub struct ReceiveSegments<'a> {
    wqe: &'a [u8],
}

impl<'a> ReceiveSegments<'a> {
    /// Returns the scatter list of an RQ WQE. With `signature`, the first segment is
    /// a signature.
    #[must_use]
    pub fn of_rq(wqe: &'a [u8], signature: bool) -> Self {
        Self {
            wqe: if signature {
                wqe.get(SEGMENT..).unwrap_or_default()
            } else {
                wqe
            },
        }
    }

    /// Returns the scatter list of an SRQ WQE, after its link.
    #[must_use]
    pub fn of_srq(wqe: &'a [u8]) -> Self {
        Self {
            wqe: wqe.get(SEGMENT..).unwrap_or_default(),
        }
    }
}

impl Iterator for ReceiveSegments<'_> {
    type Item = Data;

    fn next(&mut self) -> Option<Data> {
        let (bytes, rest) = self.wqe.split_first_chunk::<SEGMENT>()?;
        if be32(bytes, 0) == 0 && be32(bytes, 4) == INVALID_LKEY {
            self.wqe = &[];
            return None;
        }
        self.wqe = rest;
        Some(pointer(bytes))
    }
}

/// Returns the index of the next WQE (`mlx5_wqe_srq_next_seg`).
#[must_use]
pub fn srq_next(wqe: &[u8; SEGMENT]) -> u16 {
    u16::from_be_bytes([wqe[2], wqe[3]])
}

fn pointer(bytes: &[u8; SEGMENT]) -> Data {
    let length = match be32(bytes, 0) {
        0 => ZERO_MEANS,
        count => count,
    };
    Data::Pointer {
        length,
        key: be32(bytes, 4),
        address: be64(bytes, 8),
    }
}

fn segment(wqe: &[u8], at: usize) -> Result<&[u8; SEGMENT], Malformed> {
    wqe.get(at..)
        .and_then(|rest| rest.first_chunk())
        .ok_or(Malformed::Truncated)
}

fn be32(bytes: &[u8; SEGMENT], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn be64(bytes: &[u8; SEGMENT], at: usize) -> u64 {
    u64::from(be32(bytes, at)) << 32 | u64::from(be32(bytes, at + 4))
}

#[cfg(test)]
#[path = "wqe_tests.rs"]
mod tests;
