//! Segments: pieces of memory in a post.

/// A piece of local memory: `DAT_LMR_TRIPLET`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LmrSegment {
    /// The LMR's context.
    pub context: u32,
    /// The first byte.
    pub address: u64,
    /// The length in bytes; with 0 the other fields are ignored.
    pub length: u64,
}

/// A piece of the peer's memory: `DAT_RMR_TRIPLET`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RmrSegment {
    /// The context that the peer has sent: of an LMR or an RMR of its own.
    pub context: u32,
    /// The first byte, in the peer's address space.
    pub address: u64,
    /// The length in bytes.
    pub length: u64,
}
