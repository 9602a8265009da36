//! Fetching a cache line that is needed soon.

/// Starts to bring the line at `address` into the first-level cache, for reading. Any address
/// is allowed; nothing happens if it is not mapped.
#[inline(always)]
pub fn prefetch(address: *const u8) {
    #[cfg(miri)]
    let _ = address;
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a hint, which never faults.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: as above.
    unsafe {
        core::arch::asm!("prfm pldl1keep, [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
}
