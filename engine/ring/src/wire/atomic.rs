//! Atomic operations, and the segment with their operands (`mlx5_wqe_atomic_seg`).

use super::WqeOpcode;

/// An atomic operation on 64 bits of the peer's memory. The bits before it go to the
/// segment of the request. All numbers are in host byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicOp {
    /// Adds this value; the sum wraps.
    FetchAdd(u64),
    /// Replaces the bits if they equal a value.
    CompareSwap {
        /// The value that is replaced.
        compare: u64,
        /// The value that replaces it.
        swap: u64,
    },
}

impl AtomicOp {
    /// The bytes that an atomic operation changes, and brings to its segment.
    pub const BYTES: u32 = 8;

    /// Returns the opcode of its WQE.
    #[inline(always)]
    #[must_use]
    pub const fn opcode(self) -> WqeOpcode {
        match self {
            Self::FetchAdd(_) => WqeOpcode::AtomicFetchAdd,
            Self::CompareSwap { .. } => WqeOpcode::AtomicCompareSwap,
        }
    }

    /// Returns the segment as it lies in memory: the value to add or to swap in, and the value
    /// to compare with. A fetch-and-add has no second word, which keeps its old bytes, as in
    /// libmlx5.
    #[inline(always)]
    #[must_use]
    pub const fn to_words(self) -> (u64, Option<u64>) {
        match self {
            Self::FetchAdd(add) => (add.to_be(), None),
            Self::CompareSwap { compare, swap } => (swap.to_be(), Some(compare.to_be())),
        }
    }
}
