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

/// As many as 16 bytes are.
const WIDE: usize = 16 / size_of::<Wide>();

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
    // SAFETY: the bytes are readable; packed, it needs no alignment.
    unsafe { from.cast::<Unaligned<T>>().read_volatile() }.0
}

/// Writes a value to message memory.
///
/// # Safety
/// Its bytes are writable.
#[inline(always)]
unsafe fn write<T: Copy>(to: *mut u8, value: T) {
    // SAFETY: the bytes are writable; packed, it needs no alignment.
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
    debug_assert!((1..=SHORT_COPY as usize).contains(&length));
    // SAFETY: each arm's `N` values fit the length, and twice as many cover it.
    unsafe {
        match length {
            65.. => copy_ends::<Wide, { 4 * WIDE }>(to, from, length),
            33.. => copy_ends::<Wide, { 2 * WIDE }>(to, from, length),
            16.. => copy_ends::<Wide, WIDE>(to, from, length),
            8.. => copy_ends::<u64, 1>(to, from, length),
            4.. => copy_ends::<u32, 1>(to, from, length),
            2.. => copy_ends::<u16, 1>(to, from, length),
            _ => copy_ends::<u8, 1>(to, from, length),
        }
    }
}

/// Copies `length` bytes, at least 1 and at most 32, into message memory that nothing
/// else accesses meanwhile. Returns `false`, with nothing copied, for any other length.
/// Inlined, as [`read_short`]. The writes are plain: LLVM would pass the value of a
/// volatile one, at any address, through the stack.
///
/// # Safety
/// 32 readable bytes at `from`, and `length` writable bytes at `to` if `length` is at
/// most 32; they do not overlap, and nothing else accesses those at `to`.
#[inline(always)]
pub(crate) unsafe fn write_short(to: *mut u8, from: *const u8, length: usize) -> bool {
    // SAFETY: each arm's `N` values fit the length, and twice as many cover it.
    unsafe {
        match length {
            16..=32 => copy_ends::<Wide, WIDE>(to, from, length),
            8..16 => copy_ends::<u64, 1>(to, from, length),
            4..8 => copy_ends::<u32, 1>(to, from, length),
            2..4 => copy_ends::<u16, 1>(to, from, length),
            1 => copy_ends::<u8, 1>(to, from, length),
            _ => return false,
        }
    }
    true
}

/// Copies the first and the last `N` of at least `N` and at most `2 * N` values.
///
/// # Safety
/// `length` readable bytes at `from`, at least `N` values, and as many bytes that only the
/// caller writes at `to`, which do not overlap.
#[inline(always)]
unsafe fn copy_ends<T: Copy, const N: usize>(to: *mut u8, from: *const u8, length: usize) {
    for value in 0..N {
        let (front, back) = (
            value * size_of::<T>(),
            length - (value + 1) * size_of::<T>(),
        );
        for at in [front, back] {
            // SAFETY: a value that begins and ends inside both, of any alignment.
            unsafe {
                let value = read::<T>(from.add(at));
                to.add(at).cast::<T>().write_unaligned(value);
            }
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
    // SAFETY: `from` is readable and `to` writable for the length.
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
    // SAFETY: `from` is readable and `to` writable for the length.
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
    fn short_messages_are_written_exactly_and_others_are_refused() {
        let from = pattern(32);
        for length in 0..40 {
            let mut to = vec![0xa5; length + 2];
            // SAFETY: 32 readable bytes, and `length` bytes inside their vector.
            let copied = unsafe { write_short(to.as_mut_ptr().add(1), from.as_ptr(), length) };
            assert_eq!(copied, (1..=32).contains(&length), "{length}");
            if copied {
                assert_eq!(to[1..=length], from[..length], "{length}");
            } else {
                assert!(to.iter().all(|&byte| byte == 0xa5), "{length}");
            }
            assert_eq!((to[0], to[length + 1]), (0xa5, 0xa5), "{length}");
        }
    }

    #[test]
    fn copies_of_any_length_and_alignment_copy_exactly_what_they_are_told() {
        for length in (0..100).step_by(if cfg!(miri) { 9 } else { 1 }) {
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
