//! Segments as C passes them.

use dat_api::types::{LmrSegment, RmrSegment};

use crate::abi::{DAT_COUNT, DAT_LMR_TRIPLET, DAT_RMR_TRIPLET};

/// A list of local segments, read as it is needed.
#[derive(Clone, Copy)]
pub(crate) struct Segments {
    first: *const DAT_LMR_TRIPLET,
    count: usize,
}

impl Segments {
    /// The list that a posting call names. Nothing if it is null but should
    /// hold something. A negative count comes out as one that is larger than
    /// any limit.
    ///
    /// # Safety
    /// At `first` lie as many readable triplets as the poster reads, at most
    /// `count`, while this is used; they need not be aligned.
    #[inline(always)]
    pub(crate) unsafe fn new(count: DAT_COUNT, first: *const DAT_LMR_TRIPLET) -> Option<Self> {
        if first.is_null() && is_missing(count) {
            return None;
        }
        let count = count.cast_unsigned() as usize;
        Some(Self { first, count })
    }

    /// How many there are, if C told the truth.
    #[inline(always)]
    pub(crate) fn count(self) -> usize {
        self.count
    }

    /// One of them.
    ///
    /// # Safety
    /// `index` is below [`Self::count`].
    #[inline(always)]
    pub(crate) unsafe fn get(self, index: usize) -> LmrSegment {
        // SAFETY: inside the caller's array, as promised to `new`.
        let triplet = unsafe { self.first.add(index).read_unaligned() };
        LmrSegment {
            context: triplet.lmr_context,
            address: triplet.virtual_address,
            length: triplet.segment_length,
        }
    }
}

/// Whether a list that is null should hold something; apart, so that the
/// usual list is not null by one comparison.
#[cold]
#[inline(never)]
fn is_missing(count: DAT_COUNT) -> bool {
    count != 0
}

/// The remote side of an RDMA transfer; nothing if the pointer is null.
///
/// # Safety
/// Null, or readable; it need not be aligned.
#[inline(always)]
pub(crate) unsafe fn remote(triplet: *const DAT_RMR_TRIPLET) -> Option<RmrSegment> {
    if triplet.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    let triplet = unsafe { triplet.read_unaligned() };
    Some(RmrSegment {
        context: triplet.rmr_context,
        address: triplet.target_address,
        length: triplet.segment_length,
    })
}
