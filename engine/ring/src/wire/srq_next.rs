//! The first segment of a shared receive WQE (`mlx5_wqe_srq_next_seg`).

use super::Be16;

/// 16 bytes, of which the link to the next WQE is the only one that software
/// writes; the device keeps a signature and reserved bytes in the rest.
#[repr(C, align(16))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SrqNextSegment {
    reserved_0: [u8; 2],
    next_wqe_index: Be16,
    signature: u8,
    reserved_5: [u8; 11],
}

const _: () = assert!(size_of::<SrqNextSegment>() == 16);

impl SrqNextSegment {
    /// Where the link lies in the segment.
    pub const NEXT_OFFSET: usize = core::mem::offset_of!(Self, next_wqe_index);
}

const _: () = assert!(SrqNextSegment::NEXT_OFFSET == 2);
