//! The prefixes of the x86-64 instructions that store a vector register: none or one
//! byte (SSE), VEX (AVX) and EVEX (AVX-512). Intel SDM, volume 2, sections 2.3 and 2.7.

use super::store::{Code, Memory};

/// What the prefixes of an instruction of map 0F say.
#[derive(Clone, Copy, Debug)]
pub(super) struct Encoding {
    /// The byte 66, F3 or F2, or the field `pp` that stands for it.
    prefix: Option<u8>,
    format: Format,
    /// Bit 3 of the register, the index and the base, in bits 2, 1 and 0.
    pub(super) rex: u8,
    /// The first of the 16 registers that the register field selects from.
    pub(super) first: usize,
    /// The unit of a displacement of one byte, in bytes.
    pub(super) unit: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Legacy,
    Vex,
    Evex,
}

/// The field `pp` of VEX and EVEX.
const PREFIXES: [Option<u8>; 4] = [None, Some(0x66), Some(0xf3), Some(0xf2)];

impl Encoding {
    /// Returns the encoding of an instruction without VEX or EVEX.
    pub(super) fn legacy(prefix: Option<u8>, rex: u8) -> Self {
        Self {
            prefix,
            format: Format::Legacy,
            rex,
            first: 0,
            unit: 1,
        }
    }

    /// Reads VEX or EVEX, whose first byte is `byte`. Returns `None` for another byte,
    /// and `Some(None)` for an instruction that stores no vector register.
    pub(super) fn of<M: Memory>(byte: u8, code: &mut Code<'_, M>) -> Option<Option<Self>> {
        match byte {
            0xc5 => Some(Self::two_byte_vex(code.byte())),
            0xc4 => Some(Self::three_byte_vex([code.byte(), code.byte()])),
            0x62 => Some(Self::evex([code.byte(), code.byte(), code.byte()])),
            _ => None,
        }
    }

    // Registers are encoded inverted, so that an unused one is all ones.

    fn two_byte_vex(byte: u8) -> Option<Self> {
        Self::vex(!byte >> 5 & 4, byte)
    }

    fn three_byte_vex([first, second]: [u8; 2]) -> Option<Self> {
        const MAP_0F: u8 = 1;
        (first & 0x1f == MAP_0F).then_some(())?;
        Self::vex(!first >> 5 & 7, second)
    }

    fn vex(rex: u8, last: u8) -> Option<Self> {
        const NO_SECOND_REGISTER: u8 = 0x78;
        (last & NO_SECOND_REGISTER == NO_SECOND_REGISTER).then_some(Self {
            prefix: PREFIXES[usize::from(last & 3)],
            format: Format::Vex,
            rex,
            first: 0,
            unit: 1,
        })
    }

    fn evex([first, second, third]: [u8; 3]) -> Option<Self> {
        // Map 0F; no second register, and a bit that is always set; no mask, no
        // broadcast, and the upper bit of the second register.
        let is_store = first & 0x0f == 0x01 && second & 0x7c == 0x7c && third & 0x9f == 0x08;
        let length = third >> 5 & 3;
        (is_store && length < 3).then_some(Self {
            prefix: PREFIXES[usize::from(second & 3)],
            format: Format::Evex,
            rex: !first >> 5 & 7,
            first: if first & 0x10 == 0 { 16 } else { 0 },
            unit: 16 << length,
        })
    }

    /// Returns whether an opcode stores at least the first 8 bytes of a register.
    pub(super) fn stores(&self, opcode: u8) -> bool {
        match (self.prefix, opcode) {
            // movups, movaps, movntps and their pd forms
            (None | Some(0x66), 0x11 | 0x29 | 0x2b) => true,
            // movdqa, movdqu; movntdq
            (Some(0x66 | 0xf3), 0x7f) | (Some(0x66), 0xe7) => true,
            // vmovdqu8 and vmovdqu16
            (Some(0xf2), 0x7f) => self.format == Format::Evex,
            // movlps, movlpd, movq: 8 bytes
            (None | Some(0x66), 0x13) | (Some(0x66), 0xd6) => self.format != Format::Evex,
            _ => false,
        }
    }
}
