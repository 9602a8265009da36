//! Pieces of memory in a post.

/// A piece of local memory: `DAT_LMR_TRIPLET`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LmrSegment {
    /// The LMR's context.
    pub context: u32,
    /// First byte.
    pub address: u64,
    /// Bytes; with 0 the other fields mean nothing.
    pub length: u64,
}

/// A piece of the peer's memory: `DAT_RMR_TRIPLET`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RmrSegment {
    /// The context that the peer gave out: of an LMR or an RMR of its own.
    pub context: u32,
    /// First byte, in the peer's address space.
    pub address: u64,
    /// Bytes.
    pub length: u64,
}
