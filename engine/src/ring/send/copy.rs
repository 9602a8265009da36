//! Copying short inline data without a call.

/// The longest inline data that are copied without a call to `memcpy`.
pub(super) const SHORT_COPY: u32 = 128;

/// Copies `length` bytes, at least 1 and at most [`SHORT_COPY`], in line: by
/// accesses of one size from both ends, which meet or overlap in the middle.
///
/// # Safety
/// `length` readable bytes at `from` and writable bytes at `to`, which do not
/// overlap.
#[inline(always)]
pub(super) unsafe fn copy_short(to: *mut u8, from: *const u8, length: usize) {
    /// The first and the last `N` of at least `N` and at most `2 * N` values.
    ///
    /// # Safety
    /// As above, with `length` at least `N` values.
    #[inline(always)]
    unsafe fn ends<T: Copy, const N: usize>(to: *mut u8, from: *const u8, length: usize) {
        for value in 0..N {
            let (front, back) = (
                value * size_of::<T>(),
                length - (value + 1) * size_of::<T>(),
            );
            for at in [front, back] {
                // SAFETY: a value that begins and ends inside both.
                let (to, from) = unsafe { (to.add(at).cast::<T>(), from.add(at).cast::<T>()) };
                // SAFETY: as above, of any alignment.
                unsafe { to.write_unaligned(from.read_unaligned()) };
            }
        }
    }
    debug_assert!((1..=SHORT_COPY as usize).contains(&length));
    // SAFETY: each arm's `N` values fit the length, and twice as many cover it.
    unsafe {
        match length {
            65.. => ends::<u128, 4>(to, from, length),
            33.. => ends::<u128, 2>(to, from, length),
            16.. => ends::<u128, 1>(to, from, length),
            8.. => ends::<u64, 1>(to, from, length),
            4.. => ends::<u32, 1>(to, from, length),
            2.. => ends::<u16, 1>(to, from, length),
            _ => ends::<u8, 1>(to, from, length),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_copies_copy_exactly_what_they_are_told() {
        for length in 1..=SHORT_COPY as usize {
            let from: Vec<u8> = (0..length as u8).map(|byte| byte ^ 0x5a).collect();
            let mut to = vec![0xa5; length + 2];
            // SAFETY: `length` bytes of each, inside their vectors.
            unsafe { copy_short(to.as_mut_ptr().add(1), from.as_ptr(), length) };
            assert_eq!(to[1..=length], from, "{length}");
            assert_eq!((to[0], to[length + 1]), (0xa5, 0xa5), "{length}");
        }
    }
}
