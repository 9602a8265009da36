//! The data segment: one piece of registered memory (`mlx5_wqe_data_seg`).

use super::Be64;
use crate::request::Segment;

/// 16 bytes: byte count, local key, address.
#[repr(C, align(16))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataSegment {
    length_lkey: Be64,
    addr: Be64,
}

const _: () = assert!(size_of::<DataSegment>() == 16);

/// Byte offsets of the fields.
pub(crate) mod offset {
    /// `byte_count`
    pub(crate) const LENGTH: usize = 0;
    pub(crate) const ADDR: usize = 8;
}

impl DataSegment {
    /// Ends the list of a receive WQE that has room for more segments: no
    /// bytes, and the key that never names memory (`MLX5_INVALID_LKEY`).
    pub const TERMINATOR: Self = Self {
        length_lkey: Be64::new(0x100),
        addr: Be64::new(0),
    };

    /// Returns the segment of a request.
    ///
    /// To the device a length of 0 means 2 GiB in a send or receive queue, and
    /// bit 31 makes the segment an inline header; the caller keeps both out.
    #[inline(always)]
    pub const fn new(segment: &Segment) -> Self {
        Self {
            length_lkey: Be64::new(((segment.length as u64) << 32) | segment.lkey as u64),
            addr: Be64::new(segment.addr),
        }
    }

    /// Converts from the 16 bytes of a ring.
    #[inline]
    pub const fn from_words(words: [u64; 2]) -> Self {
        Self {
            length_lkey: Be64::from_bits(words[0]),
            addr: Be64::from_bits(words[1]),
        }
    }

    /// Returns both words as they lie in memory.
    #[inline(always)]
    pub const fn to_words(self) -> [u64; 2] {
        [self.length_lkey.to_bits(), self.addr.to_bits()]
    }

    /// Returns the segment as a request would name it.
    #[inline]
    pub const fn segment(&self) -> Segment {
        let length_lkey = self.length_lkey.get();
        Segment {
            addr: self.addr.get(),
            length: (length_lkey >> 32) as u32,
            lkey: length_lkey as u32,
        }
    }
}
