//! Segments as C passes them.

use dat_api::types::{LmrSegment, RmrSegment};

use crate::abi::{DAT_COUNT, DAT_LMR_TRIPLET, DAT_RMR_TRIPLET};

/// Returns how many local segments a posting call names, and what reads one of
/// them. `None` if the list is null but should hold something. A negative count
/// becomes one that is larger than any limit.
///
/// # Safety
/// At `first` lie as many readable triplets as are read, at most `count`, while
/// the result is used; they need not be aligned.
#[inline(always)]
pub(crate) unsafe fn local(
    count: DAT_COUNT,
    first: *const DAT_LMR_TRIPLET,
) -> Option<(u32, impl Fn(usize) -> LmrSegment)> {
    if first.is_null() {
        // Two branches, of which one is taken, instead of arithmetic.
        core::hint::cold_path();
        if count != 0 {
            return None;
        }
    }
    let segment = move |index| {
        // SAFETY: inside the caller's array, as promised.
        let triplet = unsafe { first.add(index).read_unaligned() };
        LmrSegment {
            context: triplet.lmr_context,
            address: triplet.virtual_address,
            length: triplet.segment_length,
        }
    };
    Some((count.cast_unsigned(), segment))
}

/// Returns what reads the remote side of an RDMA transfer; `None` if the pointer
/// is null.
///
/// # Safety
/// Null, or readable while the result is used.
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
