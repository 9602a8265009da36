//! Opcodes of requests (`MLX5_OPCODE_*`) and of completions (`MLX5_CQE_*`).

/// The low byte of a control segment, and the top byte of `sop_drop_qpn`.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WqeOpcode {
    /// No operation.
    Nop = 0x00,
    /// RDMA write.
    RdmaWrite = 0x08,
    /// RDMA write with immediate data.
    RdmaWriteImm = 0x09,
    /// Send.
    Send = 0x0a,
    /// Send with immediate data.
    SendImm = 0x0b,
    /// RDMA read.
    RdmaRead = 0x10,
    /// Compare and swap.
    AtomicCompareSwap = 0x11,
    /// Fetch and add.
    AtomicFetchAdd = 0x12,
    /// A change of a memory key.
    Umr = 0x25,
}

impl WqeOpcode {
    /// Returns whether it is one of an atomic operation.
    #[inline(always)]
    pub const fn is_atomic(self) -> bool {
        matches!(self, Self::AtomicCompareSwap | Self::AtomicFetchAdd)
    }

    /// Returns the opcode of this number, if it is one that the rings post.
    #[inline]
    pub const fn from_bits(bits: u8) -> Option<Self> {
        Some(match bits {
            0x00 => Self::Nop,
            0x08 => Self::RdmaWrite,
            0x09 => Self::RdmaWriteImm,
            0x0a => Self::Send,
            0x0b => Self::SendImm,
            0x10 => Self::RdmaRead,
            0x11 => Self::AtomicCompareSwap,
            0x12 => Self::AtomicFetchAdd,
            0x25 => Self::Umr,
            _ => return None,
        })
    }

    /// Returns the name that is printed.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nop => "NOP",
            Self::RdmaWrite => "RDMA_WRITE",
            Self::RdmaWriteImm => "RDMA_WRITE_IMM",
            Self::Send => "SEND",
            Self::SendImm => "SEND_IMM",
            Self::RdmaRead => "RDMA_READ",
            Self::AtomicCompareSwap => "ATOMIC_CS",
            Self::AtomicFetchAdd => "ATOMIC_FA",
            Self::Umr => "UMR",
        }
    }
}

/// The upper four bits of a CQE's last byte.
///
/// Constants rather than an enum: the number comes from the device, and any of
/// the sixteen can be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CqeOpcode(pub u8);

impl CqeOpcode {
    /// A request of the send queue is done.
    pub const REQUESTER: Self = Self(0);
    /// The peer wrote with immediate data.
    pub const RESPONDER_WRITE_IMM: Self = Self(1);
    /// A message was received.
    pub const RESPONDER_SEND: Self = Self(2);
    /// A message with immediate data was received.
    pub const RESPONDER_SEND_IMM: Self = Self(3);
    /// A message that invalidates a key was received.
    pub const RESPONDER_SEND_INVALIDATE: Self = Self(4);
    /// Never written by a device: a completion of a queue pair that no longer
    /// exists, invalidated by [`crate::complete::CompletionRing::cq_clean`] so that
    /// polling skips it.
    pub const STALE: Self = Self(7);
    /// A request of the send queue failed.
    pub const REQUESTER_ERROR: Self = Self(13);
    /// A receive failed.
    pub const RESPONDER_ERROR: Self = Self(14);
    /// Nothing has been written here yet.
    pub const INVALID: Self = Self(15);

    /// Returns whether the completion belongs to a receive.
    #[inline]
    pub const fn is_responder(self) -> bool {
        matches!(self.0, 1..=4 | 14)
    }

    /// Returns the name that is printed.
    pub const fn name(self) -> &'static str {
        match self.0 {
            0 => "REQ",
            1 => "RESP_WR_IMM",
            2 => "RESP_SEND",
            3 => "RESP_SEND_IMM",
            4 => "RESP_SEND_INV",
            7 => "STALE",
            13 => "REQ_ERR",
            14 => "RESP_ERR",
            15 => "INVALID",
            _ => "UNKNOWN",
        }
    }
}
