//! The operands of an atomic operation (`mlx5_wqe_atomic_seg`).

use super::Be64;

/// 16 bytes: the value to swap in or to add, and the value to compare with.
#[repr(C, align(16))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicSegment {
    swap_add: Be64,
    compare: Be64,
}

const _: () = assert!(size_of::<AtomicSegment>() == 16);

impl AtomicSegment {
    /// Returns the operands of a compare-and-swap.
    #[inline(always)]
    pub const fn compare_swap(compare: u64, swap: u64) -> Self {
        Self {
            swap_add: Be64::new(swap),
            compare: Be64::new(compare),
        }
    }

    /// Returns the operand of a fetch-and-add. The device ignores the second word.
    #[inline(always)]
    pub const fn fetch_add(add: u64) -> Self {
        Self::compare_swap(0, add)
    }

    /// Returns both words as they lie in memory.
    #[inline(always)]
    pub const fn to_words(self) -> [u64; 2] {
        [self.swap_add.to_bits(), self.compare.to_bits()]
    }
}
