//! The completion queue entry (`mlx5_cqe64`, `mlx5_err_cqe`).
//!
//! Polling reads it in three steps. The last byte ([`OwnOp`]) shows whether the
//! device has written the entry. The last eight bytes ([`CqeTail`]) name the
//! queue pair and the request. The rest is read only for opcodes that need it.
//! [`Cqe`] is a copy of the whole entry, for errors and for printing.

use super::{Be32, Be64, CqeOpcode, Syndrome};

/// Byte offsets in the 64 bytes that the device defines.
pub mod offset {
    /// `srqn_uidx`
    pub const SRQN_UIDX: usize = 32;
    /// `imm_inval_pkey`
    pub const IMM: usize = 36;
    /// `byte_cnt`
    pub const BYTE_COUNT: usize = 44;
    /// `timestamp`; an error CQE has its syndrome here
    pub const TIMESTAMP: usize = 48;
    /// `vendor_err_synd` of an error CQE
    pub const VENDOR_SYNDROME: usize = 54;
    /// `syndrome` of an error CQE
    pub const SYNDROME: usize = 55;
    /// `sop_drop_qpn`
    pub const REQUEST_QPN: usize = 56;
    /// `wqe_counter`
    pub const WQE_COUNTER: usize = 60;
    /// `sop_drop_qpn`, `wqe_counter`, `signature`, `op_own`: one word
    pub const TAIL: usize = 56;
    /// `op_own`
    pub const OWN_OP: usize = 63;
}

/// The last byte: opcode, inline scatter format, solicited event, owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnOp(pub u8);

/// The place of the payload of a small message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InlineScatter {
    /// In the memory that the request named.
    None,
    /// In bytes 0..32 of the CQE.
    First32,
    /// In the 64 bytes before the CQE (the first half of a 128-byte entry).
    Before64,
}

impl OwnOp {
    /// The owner bit, compared with the lap of the ring.
    pub const OWNER: u8 = 1;
    /// The peer requested a solicited event.
    pub const SOLICITED: u8 = 1 << 1;
    /// `MLX5_INLINE_SCATTER_32`
    pub const SCATTER_32: u8 = 1 << 2;
    /// `MLX5_INLINE_SCATTER_64`
    pub const SCATTER_64: u8 = 1 << 3;

    /// Returns the opcode.
    #[inline(always)]
    pub const fn opcode(self) -> CqeOpcode {
        CqeOpcode(self.0 >> 4)
    }

    /// Returns where the payload is.
    #[inline(always)]
    pub const fn inline_scatter(self) -> InlineScatter {
        if self.0 & Self::SCATTER_32 != 0 {
            InlineScatter::First32
        } else if self.0 & Self::SCATTER_64 != 0 {
            InlineScatter::Before64
        } else {
            InlineScatter::None
        }
    }

    /// Returns whether the peer requested a solicited event.
    #[inline(always)]
    pub const fn solicited(self) -> bool {
        self.0 & Self::SOLICITED != 0
    }

    /// Returns the byte with opcode [`CqeOpcode::STALE`]; the owner bit stays.
    pub const fn stale(self) -> Self {
        Self((CqeOpcode::STALE.0 << 4) | (self.0 & Self::OWNER))
    }
}

/// `sop_drop_qpn`, in host order: the queue pair of the completion, and the operation
/// of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestQpn(pub u32);

impl RequestQpn {
    /// The bits of the queue pair.
    pub const QPN: u32 = 0x00ff_ffff;

    /// Returns the opcode of the request, in a requester CQE.
    #[inline(always)]
    pub const fn request_opcode(self) -> u8 {
        (self.0 >> 24) as u8
    }

    /// Returns the queue pair, 24 bits, in CQEs of either version.
    #[inline(always)]
    pub const fn qpn(self) -> u32 {
        self.0 & Self::QPN
    }
}

/// The last eight bytes, in host order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CqeTail(u64);

impl CqeTail {
    /// Converts from the word as it lies in memory.
    #[inline(always)]
    pub const fn from_bits(bits: u64) -> Self {
        Self(Be64::from_bits(bits).get())
    }

    /// Returns the opcode of the request, in a requester CQE.
    #[inline(always)]
    pub const fn request_opcode(self) -> u8 {
        (self.0 >> 56) as u8
    }

    /// Returns the queue pair, 24 bits, in CQEs of either version.
    #[inline(always)]
    pub const fn qpn(self) -> u32 {
        (self.0 >> 32) as u32 & 0x00ff_ffff
    }

    /// Returns which request it is. Send queue: the WQEBB counter at its start.
    /// Receive queue: its WQE counter. Shared receive queue: the index of its WQE.
    #[inline(always)]
    pub const fn wqe_counter(self) -> u16 {
        (self.0 >> 16) as u16
    }

    /// Returns the last byte.
    #[inline(always)]
    pub const fn own_op(self) -> OwnOp {
        OwnOp(self.0 as u8)
    }
}

/// A whole entry, copied out of the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cqe {
    words: [u64; 8],
}

impl Cqe {
    /// Converts from the 64 bytes as they lie in memory.
    pub const fn from_words(words: [u64; 8]) -> Self {
        Self { words }
    }

    /// Converts from 64 bytes.
    pub fn from_bytes(bytes: &[u8; 64]) -> Self {
        let mut words = [0; 8];
        for (word, chunk) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_ne_bytes(chunk.try_into().expect("chunks of eight"));
        }
        Self { words }
    }

    /// Returns the last eight bytes.
    pub const fn tail(&self) -> CqeTail {
        CqeTail::from_bits(self.words[offset::TAIL / 8])
    }

    const fn be32(&self, offset: usize) -> u32 {
        let word = Be64::from_bits(self.words[offset / 8]).get();
        if offset % 8 == 0 {
            (word >> 32) as u32
        } else {
            word as u32
        }
    }

    const fn byte(&self, offset: usize) -> u8 {
        (Be64::from_bits(self.words[offset / 8]).get() >> (56 - 8 * (offset % 8))) as u8
    }

    /// Returns the shared receive queue (CQE version 0) or the user index (version 1).
    pub const fn srqn_uidx(&self) -> u32 {
        self.be32(offset::SRQN_UIDX) & 0x00ff_ffff
    }

    /// Returns the immediate data in host order, where the opcode has any.
    pub const fn imm(&self) -> u32 {
        self.be32(offset::IMM)
    }

    /// Returns the bytes received or read.
    pub const fn byte_count(&self) -> u32 {
        self.be32(offset::BYTE_COUNT)
    }

    /// Returns the cause, in an error CQE.
    pub const fn syndrome(&self) -> Syndrome {
        Syndrome(self.byte(offset::SYNDROME))
    }

    /// Returns the vendor's error code, in an error CQE.
    pub const fn vendor_syndrome(&self) -> u8 {
        self.byte(offset::VENDOR_SYNDROME)
    }
}

const _: () = assert!(offset::TAIL % align_of::<Be64>() == 0);
const _: () = assert!(offset::BYTE_COUNT % align_of::<Be32>() == 0);
const _: () = assert!(offset::TIMESTAMP % align_of::<Be64>() == 0);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_where_the_header_puts_them() {
        let mut bytes = [0u8; 64];
        bytes[33..36].copy_from_slice(&[0x0a, 0x0b, 0x0c]);
        bytes[36..40].copy_from_slice(&[1, 2, 3, 4]);
        bytes[44..48].copy_from_slice(&[0, 0, 0x10, 0x01]);
        bytes[54] = 0x89;
        bytes[55] = 0x13;
        bytes[56..60].copy_from_slice(&[0x0a, 0x12, 0x34, 0x56]);
        bytes[60..62].copy_from_slice(&[0xbe, 0xef]);
        bytes[63] = 0xd7;
        let cqe = Cqe::from_bytes(&bytes);
        assert_eq!(cqe.srqn_uidx(), 0x0a_0b0c);
        assert_eq!(cqe.imm(), 0x0102_0304);
        assert_eq!(cqe.byte_count(), 0x1001);
        assert_eq!(cqe.vendor_syndrome(), 0x89);
        assert_eq!(cqe.syndrome(), Syndrome(0x13));
        let tail = cqe.tail();
        assert_eq!(tail.request_opcode(), 0x0a);
        assert_eq!(tail.qpn(), 0x12_3456);
        assert_eq!(tail.wqe_counter(), 0xbeef);
        assert_eq!(tail.own_op(), OwnOp(0xd7));
        assert_eq!(tail.own_op().opcode(), CqeOpcode::REQUESTER_ERROR);
        assert!(tail.own_op().solicited());
        assert_eq!(tail.own_op().inline_scatter(), InlineScatter::First32);
        assert_eq!(tail.own_op().stale(), OwnOp(0x71));
    }
}
