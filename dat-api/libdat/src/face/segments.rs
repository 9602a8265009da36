//! Segments as C passes them.

use dat_api::object::ep::is_usual;
use dat_api::types::{CompletionFlags, LmrSegment, RmrSegment};

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
        if first.is_null() && count != 0 {
            return None;
        }
        let count = count.cast_unsigned() as usize;
        Some(Self { first, count })
    }

    /// Reads the only segment of a post of the usual kind, if it is one.
    ///
    /// # Safety
    /// As for [`Self::new`].
    #[inline(always)]
    pub(crate) unsafe fn one(
        count: DAT_COUNT,
        flags: CompletionFlags,
        first: *const DAT_LMR_TRIPLET,
    ) -> Option<impl Fn() -> LmrSegment> {
        if !is_usual(count.cast_unsigned() as usize, flags) {
            // Less for what that is than for two branches instead of arithmetic.
            core::hint::cold_path();
            return None;
        }
        // SAFETY: not null, as promised to the caller.
        (!first.is_null()).then_some(move || unsafe { read(first) })
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
        unsafe { read(self.first.add(index)) }
    }
}

/// A segment that lies anywhere.
///
/// # Safety
/// It is readable.
#[inline(always)]
unsafe fn read(triplet: *const DAT_LMR_TRIPLET) -> LmrSegment {
    // SAFETY: the caller's promise.
    let triplet = unsafe { triplet.read_unaligned() };
    LmrSegment {
        context: triplet.lmr_context,
        address: triplet.virtual_address,
        length: triplet.segment_length,
    }
}

/// Reads the remote side of an RDMA transfer; nothing if the pointer is null.
///
/// # Safety
/// Null, or readable while this is used.
#[inline(always)]
pub(crate) unsafe fn remote(triplet: *const DAT_RMR_TRIPLET) -> Option<impl Fn() -> RmrSegment> {
    if triplet.is_null() {
        return None;
    }
    Some(move || {
        // SAFETY: the caller's promise.
        let triplet = unsafe { triplet.read_unaligned() };
        RmrSegment {
            context: triplet.rmr_context,
            address: triplet.target_address,
            length: triplet.segment_length,
        }
    })
}
