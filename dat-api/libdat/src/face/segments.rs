//! Conversion of segments.

use dat_api::object::ep::kind::Remote;
use dat_api::types::LmrSegment;

use crate::abi::{DAT_COUNT, DAT_LMR_TRIPLET, DAT_RMR_TRIPLET};
use crate::version;

/// Returns the number of local segments of a post, and a closure that reads one
/// of them. Returns `None` if the list is null although the count is not 0. A
/// negative count becomes a number above every limit.
///
/// # Safety
/// Each triplet that the closure reads, below `count`, is readable while the
/// result is used. It need not be aligned.
#[inline(always)]
pub(crate) unsafe fn local(
    count: DAT_COUNT,
    first: *const DAT_LMR_TRIPLET,
) -> Option<(u32, impl Fn(usize) -> LmrSegment)> {
    if first.is_null() {
        // A branch is cheaper here than arithmetic without one.
        core::hint::cold_path();
        if count != 0 {
            return None;
        }
    }
    // SAFETY: the segments are readable while the result is used.
    Some((count.cast_unsigned(), unsafe {
        version::local_segments(first)
    }))
}

/// Returns a closure that reads the remote segment of an RDMA transfer; `None` if
/// the pointer is null.
///
/// # Safety
/// The pointer is null, or readable while the result is used.
#[inline(always)]
pub(crate) unsafe fn remote(triplet: *const DAT_RMR_TRIPLET) -> Option<impl Remote> {
    if triplet.is_null() {
        return None;
    }
    Some(move || {
        // SAFETY: the segments are readable while the result is used.
        unsafe { version::remote_segment(triplet) }
    })
}
