//! Copies of bytes that a device, or another thread, may access meanwhile: the
//! memory of messages.
//!
//! That memory is mapped for a device, no Rust reference to it exists, and its
//! bytes may change at any moment. So each access is volatile. A read that
//! races with a change returns a mixture of old and new bytes; an aligned word
//! of up to eight bytes is read, and written, in one access.

/// The widest word that is copied by one volatile access. Any bytes are a valid value.
#[cfg(target_arch = "x86_64")]
type Wide = core::arch::x86_64::__m128i;
#[cfg(target_arch = "aarch64")]
type Wide = core::arch::aarch64::uint8x16_t;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
type Wide = u64;

/// A value at any address.
#[derive(Clone, Copy)]
#[repr(C, packed)]
struct Unaligned<T>(T);

/// Reads a value from message memory.
///
/// # Safety
/// Its bytes are readable, and any bytes are a `T`.
#[inline(always)]
unsafe fn read<T: Copy>(from: *const u8) -> T {
    // SAFETY: required of the caller; packed, it needs no alignment.
    unsafe { from.cast::<Unaligned<T>>().read_volatile() }.0
}

/// Writes a value to message memory.
///
/// # Safety
/// Its bytes are writable.
#[inline(always)]
unsafe fn write<T: Copy>(to: *mut u8, value: T) {
    // SAFETY: required of the caller; packed, it needs no alignment.
    unsafe { to.cast::<Unaligned<T>>().write_volatile(Unaligned(value)) };
}

/// The longest copy that is inlined.
pub(crate) const SHORT_COPY: u32 = 128;

/// Copies `length` bytes, at least 1 and at most [`SHORT_COPY`], out of message
/// memory. Inlined: it uses accesses of one size from both ends, which meet or
/// overlap in the middle.
///
/// # Safety
/// `length` readable bytes at `from`, and writable bytes of our own at `to`,
/// which do not overlap.
#[inline(always)]
pub(crate) unsafe fn read_short(to: *mut u8, from: *const u8, length: usize) {
    /// Copies the first and the last `N` of at least `N` and at most `2 * N` values.
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
                // SAFETY: a value that begins and ends inside both, of any
                // alignment.
                unsafe {
                    let value = read::<T>(from.add(at));
                    to.add(at).cast::<T>().write_unaligned(value);
                }
            }
        }
    }
    /// As many as 16 bytes are.
    const WIDE: usize = 16 / size_of::<Wide>();
    debug_assert!((1..=SHORT_COPY as usize).contains(&length));
    // SAFETY: each arm's `N` values fit the length, and twice as many cover it.
    unsafe {
        match length {
            65.. => ends::<Wide, { 4 * WIDE }>(to, from, length),
            33.. => ends::<Wide, { 2 * WIDE }>(to, from, length),
            16.. => ends::<Wide, WIDE>(to, from, length),
            8.. => ends::<u64, 1>(to, from, length),
            4.. => ends::<u32, 1>(to, from, length),
            2.. => ends::<u16, 1>(to, from, length),
            _ => ends::<u8, 1>(to, from, length),
        }
    }
}

/// The state of a copy word by word: its position and the number of bytes left.
struct Rest {
    from: *const u8,
    to: *mut u8,
    left: usize,
}

impl Rest {
    /// Copies one value after the other with `one`, as long as a whole value is
    /// left.
    ///
    /// # Safety
    /// `left` bytes are readable at `from` and writable at `to`, and `one` may be
    /// called for any of them.
    #[inline(always)]
    unsafe fn each<T>(&mut self, one: unsafe fn(*const u8, *mut u8)) {
        while self.left >= size_of::<T>() {
            // SAFETY: a whole value is left.
            unsafe {
                one(self.from, self.to);
                self.from = self.from.add(size_of::<T>());
                self.to = self.to.add(size_of::<T>());
            }
            self.left -= size_of::<T>();
        }
    }
}

/// Copies bytes out of message memory.
///
/// # Safety
/// `length` readable bytes at `from`, and writable bytes that only the caller
/// uses at `to`; they do not overlap.
pub unsafe fn read_message(from: *const u8, to: *mut u8, length: usize) {
    unsafe fn one<T: Copy>(from: *const u8, to: *mut u8) {
        // SAFETY: the caller of `each` promises a value at both.
        unsafe { to.cast::<T>().write_unaligned(read(from)) }
    }
    let mut rest = Rest {
        from,
        to,
        left: length,
    };
    // SAFETY: required of the caller.
    unsafe {
        // Words that are aligned there are read at once.
        let odd = rest.from.align_offset(size_of::<u64>()).min(length);
        rest.left = odd;
        rest.each::<u8>(one::<u8>);
        rest.left = length - odd;
        rest.each::<u64>(one::<u64>);
        rest.each::<u8>(one::<u8>);
    }
}

/// Copies bytes into message memory.
///
/// # Safety
/// `length` readable bytes at `from` that nothing writes meanwhile, and writable bytes at
/// `to`; they do not overlap.
pub unsafe fn write_message(from: *const u8, to: *mut u8, length: usize) {
    unsafe fn one<T: Copy>(from: *const u8, to: *mut u8) {
        // SAFETY: the caller of `each` promises a value at both.
        unsafe { write(to, from.cast::<T>().read_unaligned()) }
    }
    let mut rest = Rest {
        from,
        to,
        left: length,
    };
    // SAFETY: required of the caller.
    unsafe {
        // Words that are aligned there are written at once.
        let odd = rest.to.align_offset(size_of::<u64>()).min(length);
        rest.left = odd;
        rest.each::<u8>(one::<u8>);
        rest.left = length - odd;
        rest.each::<u64>(one::<u64>);
        rest.each::<u8>(one::<u8>);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(length: usize) -> Vec<u8> {
        (0..length).map(|at| at as u8 ^ 0x5a).collect()
    }

    #[test]
    fn short_copies_copy_exactly_what_they_are_told() {
        for length in 1..=SHORT_COPY as usize {
            let from = pattern(length);
            let mut to = vec![0xa5; length + 2];
            // SAFETY: `length` bytes of each, inside their vectors.
            unsafe { read_short(to.as_mut_ptr().add(1), from.as_ptr(), length) };
            assert_eq!(to[1..=length], from, "{length}");
            assert_eq!((to[0], to[length + 1]), (0xa5, 0xa5), "{length}");
        }
    }

    #[test]
    fn copies_of_any_length_and_alignment_copy_exactly_what_they_are_told() {
        for length in 0..100 {
            for (ahead, behind) in [(0, 0), (1, 0), (0, 1), (3, 5), (7, 7)] {
                let from = pattern(behind + length);
                let from = &from[behind..];
                for copy in [read_message, write_message] {
                    let mut to = vec![0xa5; ahead + length + 1];
                    // SAFETY: `length` bytes of each, inside their vectors.
                    unsafe { copy(from.as_ptr(), to.as_mut_ptr().add(ahead), length) };
                    assert_eq!(&to[ahead..ahead + length], from, "{length}");
                    assert!(to[..ahead].iter().all(|&byte| byte == 0xa5), "{length}");
                    assert_eq!(to[ahead + length], 0xa5, "{length}");
                }
            }
        }
    }
}
