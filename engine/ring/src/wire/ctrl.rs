//! The control segment, first in every send WQE (`mlx5_wqe_ctrl_seg`).

use super::{Be64, WqeOpcode};

bitflags::bitflags! {
    /// The `fm_ce_se` byte: fence mode, completion, solicited event.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct CtrlFlags: u8 {
        /// The peer's completion raises a solicited event.
        const SOLICITED = 1 << 1;
        /// Write a CQE when done.
        const CQ_UPDATE = 2 << 2;
        /// Wait for earlier changes of memory keys (fence mode 1 in bits 7..5).
        const SMALL_FENCE = 1 << 5;
        /// Wait for earlier reads and atomics, and changes (fence mode 4 in bits 7..5).
        const FENCE = 4 << 5;
    }
}

/// 16 bytes: opcode modifier, WQE index and opcode; QPN and size; signature,
/// reserved, flags; immediate data.
///
/// Kept as two 64-bit words because that is how it is written: the first word
/// is also, bit for bit, what is stored in the doorbell register.
#[repr(C, align(16))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CtrlSegment {
    index_opcode_qpn_ds: Be64,
    flags_imm: Be64,
}

const _: () = assert!(size_of::<CtrlSegment>() == 16);

impl CtrlSegment {
    /// Returns the segment of a WQE that starts at WQEBB counter `index` and is
    /// `units` times 16 bytes long. `qpn_shifted` is the queue pair number shifted left
    /// by 8. `imm` is in host order and must be 0 for opcodes without immediate
    /// data.
    #[inline(always)]
    pub const fn new(
        opcode: WqeOpcode,
        index: u16,
        qpn_shifted: u32,
        units: u32,
        flags: CtrlFlags,
        imm: u32,
    ) -> Self {
        // Groups the terms that are constant in the caller.
        let opcode_units = ((opcode as u64) << 32) | units as u64;
        let index_qpn = ((index as u64) << 40) | qpn_shifted as u64;
        Self {
            index_opcode_qpn_ds: Be64::new(index_qpn | opcode_units),
            flags_imm: Be64::new(((flags.bits() as u64) << 32) | imm as u64),
        }
    }

    /// Converts from the 16 bytes of a ring.
    pub const fn from_words(words: [u64; 2]) -> Self {
        Self {
            index_opcode_qpn_ds: Be64::from_bits(words[0]),
            flags_imm: Be64::from_bits(words[1]),
        }
    }

    /// Returns the value for the doorbell register: the first eight bytes.
    #[inline(always)]
    pub const fn doorbell(&self) -> Be64 {
        self.index_opcode_qpn_ds
    }

    /// Returns both words as they lie in memory.
    #[inline(always)]
    pub const fn to_words(self) -> [u64; 2] {
        [self.index_opcode_qpn_ds.to_bits(), self.flags_imm.to_bits()]
    }

    /// Returns the opcode byte, whatever it is.
    pub const fn opcode_bits(&self) -> u8 {
        (self.index_opcode_qpn_ds.get() >> 32) as u8
    }

    /// Returns the WQEBB counter at the start of the WQE.
    pub const fn index(&self) -> u16 {
        (self.index_opcode_qpn_ds.get() >> 40) as u16
    }

    /// Returns the queue pair.
    pub const fn qpn(&self) -> u32 {
        (self.index_opcode_qpn_ds.get() as u32) >> 8
    }

    /// Returns the size of the WQE in units of 16 bytes.
    pub const fn units(&self) -> u32 {
        (self.index_opcode_qpn_ds.get() as u32) & 0x3f
    }

    /// Returns the `fm_ce_se` byte, whatever it is.
    pub const fn flag_bits(&self) -> u8 {
        (self.flags_imm.get() >> 32) as u8
    }

    /// Returns the immediate data in host order.
    pub const fn imm(&self) -> u32 {
        self.flags_imm.get() as u32
    }
}
