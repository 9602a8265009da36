//! Atomic operations, which DAT has as an extension of 2.0.

/// An atomic operation on 64 bits of the peer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicOp {
    /// Adds this value, modulo 2^64.
    FetchAdd(u64),
    /// Writes `swap` if the bits are `compare`.
    CompareSwap {
        /// The bits that are replaced.
        compare: u64,
        /// What replaces them.
        swap: u64,
    },
}
