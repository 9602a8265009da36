//! The inline header: the bytes themselves follow it (`mlx5_wqe_inl_data_seg`).

use super::UNIT;

/// 4 bytes: bit 31 marks inline data, the rest is the byte count.
#[derive(Clone, Copy, Debug)]
pub enum InlineHeader {}

impl InlineHeader {
    /// The length of the header in bytes.
    pub const BYTES: usize = 4;
    /// The bit that distinguishes an inline header from a data segment.
    pub const MARK: u32 = 1 << 31;

    /// Returns the header of `length` bytes as it lies in memory.
    #[inline(always)]
    pub const fn bits(length: u32) -> u32 {
        (length | Self::MARK).to_be()
    }
}

/// Returns how many 16-byte units `length` inline bytes take with their header. No
/// bytes take no unit: the header is then left out.
#[inline(always)]
pub const fn inline_units(length: u32) -> u32 {
    if length == 0 {
        0
    } else {
        // Does not use `div_ceil`, which has extra instructions for overflow.
        (length + InlineHeader::BYTES as u32 + UNIT as u32 - 1) >> UNIT.ilog2()
    }
}
