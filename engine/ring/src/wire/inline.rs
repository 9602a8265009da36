//! The inline header: the bytes themselves follow it (`mlx5_wqe_inl_data_seg`).

use super::{Be32, UNIT};

/// 4 bytes: bit 31 marks inline data, the rest is the byte count.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InlineHeader {
    byte_count: Be32,
}

const _: () = assert!(size_of::<InlineHeader>() == 4);

impl InlineHeader {
    /// The bit that distinguishes an inline header from a data segment.
    pub const MARK: u32 = 1 << 31;

    /// Returns the header of `length` bytes.
    #[inline(always)]
    pub const fn new(length: u32) -> Self {
        Self {
            byte_count: Be32::new(length | Self::MARK),
        }
    }

    /// Returns the header as it lies in memory.
    #[inline(always)]
    pub const fn to_bits(self) -> u32 {
        self.byte_count.to_bits()
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
        (length + size_of::<InlineHeader>() as u32 + UNIT as u32 - 1) >> UNIT.ilog2()
    }
}
