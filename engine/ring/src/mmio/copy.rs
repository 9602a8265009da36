//! Copies of bytes that a device, or another thread, may access meanwhile: the
//! memory of messages.
//!
//! That memory is mapped for a device, no Rust reference to it exists, and its
//! bytes may change at any moment. A read that races with a change returns a
//! mixture of old and new bytes; an aligned word of up to eight bytes is read,
//! and written, in one access.
//!
//! To Rust's memory model each copy is relaxed atomic accesses to single bytes, which
//! may race with those of any other copy. Rust's own atomic types offer that only byte
//! by byte, since accesses of different widths may not race. So the instructions are
//! written out here; Miri runs the bytes.

use super::barrier;
use super::cell::Sealed;

#[cfg(all(target_arch = "x86_64", not(miri)))]
use core::arch::x86_64::__m128i as Wide;

#[cfg(all(target_arch = "aarch64", not(miri)))]
use core::arch::aarch64::uint8x16_t as Wide;

/// 16 bytes.
#[cfg(miri)]
type Wide = u128;

/// A value that one instruction copies from or to message memory, at any alignment.
/// Any bytes are a valid one. Sealed: unsigned integers, and 16 bytes.
pub trait MessageValue: Copy + Sealed {
    #[doc(hidden)]
    /// Reads the value at `at`.
    ///
    /// # Safety
    /// Its bytes are readable.
    unsafe fn load(at: *const u8) -> Self;

    #[doc(hidden)]
    /// Writes the value at `at`.
    ///
    /// # Safety
    /// Its bytes are writable.
    unsafe fn store(at: *mut u8, value: Self);

    #[doc(hidden)]
    /// Of the values of `length` bytes at `at`, reads the one that has `N` before it, and the
    /// one that has `N` after it.
    ///
    /// # Safety
    /// Their bytes are readable.
    unsafe fn load_ends<const N: usize>(at: *const u8, length: usize) -> [Self; 2];

    #[doc(hidden)]
    /// Writes the values that [`Self::load_ends`] reads.
    ///
    /// # Safety
    /// Their bytes are writable.
    unsafe fn store_ends<const N: usize>(at: *mut u8, length: usize, values: [Self; 2]);
}

impl Sealed for Wide {}

/// Implements [`MessageValue`] for a type, by an instruction for it in a class of registers.
#[cfg(not(miri))]
macro_rules! value {
    ($type:ty, $class:ident, $load:expr, $store:expr, $load_ends:expr, $store_ends:expr) => {
        impl MessageValue for $type {
            #[inline(always)]
            unsafe fn load(at: *const u8) -> Self {
                let value;
                // SAFETY: a load of readable bytes.
                unsafe {
                    asm!(
                        $load,
                        at = in(reg) at,
                        a = lateout($class) value,
                        options(nostack, preserves_flags, readonly),
                    );
                }
                value
            }

            #[inline(always)]
            unsafe fn store(at: *mut u8, value: Self) {
                // SAFETY: a store to writable bytes.
                unsafe {
                    asm!(
                        $store,
                        at = in(reg) at,
                        a = in($class) value,
                        options(nostack, preserves_flags),
                    );
                }
            }

            #[inline(always)]
            unsafe fn load_ends<const N: usize>(at: *const u8, length: usize) -> [Self; 2] {
                let (first, second);
                // SAFETY: loads of readable bytes.
                unsafe {
                    asm!(
                        $load_ends,
                        at = in(reg) at,
                        end = in(reg) end(at, length),
                        a = out($class) first,
                        b = lateout($class) second,
                        ahead = const N * size_of::<$type>(),
                        behind = const (N + 1) * size_of::<$type>(),
                        options(nostack, preserves_flags, readonly),
                    );
                }
                [first, second]
            }

            #[inline(always)]
            unsafe fn store_ends<const N: usize>(
                at: *mut u8,
                length: usize,
                [first, second]: [Self; 2],
            ) {
                // SAFETY: stores to writable bytes.
                unsafe {
                    asm!(
                        $store_ends,
                        at = in(reg) at,
                        end = in(reg) end(at, length),
                        a = in($class) first,
                        b = in($class) second,
                        ahead = const N * size_of::<$type>(),
                        behind = const (N + 1) * size_of::<$type>(),
                        options(nostack, preserves_flags),
                    );
                }
            }
        }
    };
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86_64 {
    use core::arch::asm;

    use super::{MessageValue, Wide};

    /// Returns what an instruction adds to `at` to find the end.
    #[inline(always)]
    fn end(_: *const u8, length: usize) -> usize {
        length
    }

    macro_rules! values {
        ($($type:ty, $class:ident, $mov:literal, $a:literal, $b:literal;)*) => {$(
            value!(
                $type,
                $class,
                concat!($mov, " ", $a, ", [{at}]"),
                concat!($mov, " [{at}], ", $a),
                concat!(
                    $mov, " ", $a, ", [{at} + {ahead}]\n",
                    $mov, " ", $b, ", [{at} + {end} - {behind}]"
                ),
                concat!(
                    $mov, " [{at} + {ahead}], ", $a, "\n",
                    $mov, " [{at} + {end} - {behind}], ", $b
                )
            );
        )*};
    }
    values! {
        u8, reg_byte, "mov", "{a}", "{b}";
        u16, reg, "mov", "{a:x}", "{b:x}";
        u32, reg, "mov", "{a:e}", "{b:e}";
        u64, reg, "mov", "{a}", "{b}";
        Wide, xmm_reg, "movups", "{a}", "{b}";
    }
}

#[cfg(all(target_arch = "aarch64", not(miri)))]
mod aarch64 {
    use core::arch::asm;

    use super::{MessageValue, Wide};

    /// Returns the end, from which an instruction subtracts.
    #[inline(always)]
    fn end(at: *const u8, length: usize) -> *const u8 {
        at.wrapping_add(length)
    }

    macro_rules! values {
        ($($type:ty, $class:ident, $of:literal, $a:literal, $b:literal;)*) => {$(
            value!(
                $type,
                $class,
                concat!("ldur", $of, " ", $a, ", [{at}]"),
                concat!("stur", $of, " ", $a, ", [{at}]"),
                concat!(
                    "ldur", $of, " ", $a, ", [{at}, #{ahead}]\n",
                    "ldur", $of, " ", $b, ", [{end}, #-{behind}]"
                ),
                concat!(
                    "stur", $of, " ", $a, ", [{at}, #{ahead}]\n",
                    "stur", $of, " ", $b, ", [{end}, #-{behind}]"
                )
            );
        )*};
    }
    values! {
        u8, reg, "b", "{a:w}", "{b:w}";
        u16, reg, "h", "{a:w}", "{b:w}";
        u32, reg, "", "{a:w}", "{b:w}";
        u64, reg, "", "{a}", "{b}";
        Wide, vreg, "", "{a:q}", "{b:q}";
    }
}

#[cfg(miri)]
mod model {
    use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

    use super::{MessageValue, Wide};

    macro_rules! values {
        ($($type:ty)*) => {$(
            impl MessageValue for $type {
                unsafe fn load(at: *const u8) -> Self {
                    // SAFETY: readable bytes, which only atomic accesses race with.
                    Self::from_ne_bytes(core::array::from_fn(|byte| unsafe {
                        AtomicU8::from_ptr(at.add(byte).cast_mut()).load(Relaxed)
                    }))
                }

                unsafe fn store(at: *mut u8, value: Self) {
                    for (byte, value) in value.to_ne_bytes().into_iter().enumerate() {
                        // SAFETY: writable bytes, which only atomic accesses race with.
                        unsafe { AtomicU8::from_ptr(at.add(byte)).store(value, Relaxed) };
                    }
                }

                unsafe fn load_ends<const N: usize>(at: *const u8, length: usize) -> [Self; 2] {
                    let (ahead, behind) = (N * size_of::<Self>(), (N + 1) * size_of::<Self>());
                    // SAFETY: as above.
                    [ahead, length - behind].map(|by| unsafe { Self::load(at.add(by)) })
                }

                unsafe fn store_ends<const N: usize>(
                    at: *mut u8,
                    length: usize,
                    [first, second]: [Self; 2],
                ) {
                    let (ahead, behind) = (N * size_of::<Self>(), (N + 1) * size_of::<Self>());
                    // SAFETY: as above.
                    unsafe {
                        Self::store(at.add(ahead), first);
                        Self::store(at.add(length - behind), second);
                    }
                }
            }
        )*};
    }
    values!(u8 u16 u32 u64 Wide);
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
            65.. => Out::ends::<Wide, 4>(to, from, length),
            33.. => Out::ends::<Wide, 2>(to, from, length),
            16.. => Out::ends::<Wide, 1>(to, from, length),
            8.. => Out::ends::<u64, 1>(to, from, length),
            4.. => Out::ends::<u32, 1>(to, from, length),
            2.. => Out::ends::<u16, 1>(to, from, length),
            _ => Out::ends::<u8, 1>(to, from, length),
        }
    }
}

/// Copies `length` bytes, at least 1 and at most 32, into message memory. Returns `false`,
/// with nothing copied, for any other length. Inlined, as [`read_short`].
///
/// # Safety
/// 32 readable bytes of our own at `from`, and `length` writable bytes at `to` if `length` is
/// at most 32; they do not overlap.
#[inline(always)]
pub(crate) unsafe fn write_short(to: *mut u8, from: *const u8, length: usize) -> bool {
    // SAFETY: each arm's `N` values fit the length, and twice as many cover it.
    unsafe {
        match length {
            16..=32 => In::ends::<Wide, 1>(to, from, length),
            8..16 => In::ends::<u64, 1>(to, from, length),
            4..8 => In::ends::<u32, 1>(to, from, length),
            2..4 => In::ends::<u16, 1>(to, from, length),
            1 => In::ends::<u8, 1>(to, from, length),
            _ => return false,
        }
    }
    true
}

/// A direction of copies: which of the two sides is message memory.
trait Direction {
    /// Copies one value.
    ///
    /// # Safety
    /// It is readable at `from` and writable at `to`; the side that is not message memory is
    /// the caller's alone.
    unsafe fn one<T: MessageValue>(to: *mut u8, from: *const u8);

    /// Of the values of `length` bytes, copies the one that has `N` before it, and the one that
    /// has `N` after it.
    ///
    /// # Safety
    /// As for [`Self::one`].
    unsafe fn pair<T: MessageValue, const N: usize>(to: *mut u8, from: *const u8, length: usize);

    /// Copies the first and the last `N` of at least `N` and at most `2 * N` values.
    ///
    /// # Safety
    /// As for [`Self::one`], for each value of the `length` bytes.
    #[inline(always)]
    unsafe fn ends<T: MessageValue, const N: usize>(to: *mut u8, from: *const u8, length: usize) {
        const { assert!(N == 1 || N == 2 || N == 4) }
        // SAFETY: values inside the bytes.
        unsafe {
            Self::pair::<T, 0>(to, from, length);
            if N > 1 {
                Self::pair::<T, 1>(to, from, length);
            }
            if N > 2 {
                Self::pair::<T, 2>(to, from, length);
                Self::pair::<T, 3>(to, from, length);
            }
        }
    }

    /// Copies `length` bytes; words that are aligned in message memory, at `message`, in one
    /// access.
    ///
    /// # Safety
    /// As for [`Self::one`], for the `length` bytes.
    #[inline(always)]
    unsafe fn all(mut to: *mut u8, mut from: *const u8, message: *const u8, length: usize) {
        /// Copies as many whole values as `left` bytes are. Returns the number of bytes behind
        /// them.
        #[inline(always)]
        unsafe fn each<D: Direction + ?Sized, T: MessageValue>(
            to: &mut *mut u8,
            from: &mut *const u8,
            mut left: usize,
        ) -> usize {
            while left >= size_of::<T>() {
                // SAFETY: a whole value is left.
                unsafe {
                    D::one::<T>(*to, *from);
                    *to = to.add(size_of::<T>());
                    *from = from.add(size_of::<T>());
                }
                left -= size_of::<T>();
            }
            left
        }
        let odd = message.align_offset(size_of::<u64>()).min(length);
        // SAFETY: the three pieces are the whole.
        unsafe {
            each::<Self, u8>(&mut to, &mut from, odd);
            let left = each::<Self, u64>(&mut to, &mut from, length - odd);
            each::<Self, u8>(&mut to, &mut from, left);
        }
    }
}

/// Out of message memory.
struct Out;

impl Direction for Out {
    #[inline(always)]
    unsafe fn one<T: MessageValue>(to: *mut u8, from: *const u8) {
        // SAFETY: readable; and writable memory of the caller's.
        unsafe { to.cast::<T>().write_unaligned(T::load(from)) };
    }

    #[inline(always)]
    unsafe fn pair<T: MessageValue, const N: usize>(to: *mut u8, from: *const u8, length: usize) {
        // SAFETY: as in `one`.
        unsafe {
            let [first, second] = T::load_ends::<N>(from, length);
            to.cast::<T>().add(N).write_unaligned(first);
            let end = to.add(length).cast::<T>();
            end.sub(N + 1).write_unaligned(second);
        }
    }
}

/// Into message memory.
struct In;

impl Direction for In {
    #[inline(always)]
    unsafe fn one<T: MessageValue>(to: *mut u8, from: *const u8) {
        // SAFETY: readable memory of the caller's; and writable.
        unsafe { T::store(to, from.cast::<T>().read_unaligned()) };
    }

    #[inline(always)]
    unsafe fn pair<T: MessageValue, const N: usize>(to: *mut u8, from: *const u8, length: usize) {
        // SAFETY: as in `one`.
        unsafe {
            let first = from.cast::<T>().add(N).read_unaligned();
            let end = from.add(length).cast::<T>();
            let second = end.sub(N + 1).read_unaligned();
            T::store_ends::<N>(to, length, [first, second]);
        }
    }
}

/// Copies bytes out of message memory. Any other thread, and the device, may access them
/// meanwhile, by these functions.
///
/// # Safety
/// `length` readable bytes at `from`, and writable bytes that only the caller
/// uses at `to`; they do not overlap.
pub unsafe fn read_message(from: *const u8, to: *mut u8, length: usize) {
    // SAFETY: as the caller promises.
    unsafe { Out::all(to, from, from, length) };
}

/// Copies bytes into message memory. Any other thread, and the device, may access them
/// meanwhile, by these functions.
///
/// # Safety
/// `length` readable bytes at `from` that nothing writes meanwhile, and writable bytes at
/// `to`; they do not overlap.
pub unsafe fn write_message(from: *const u8, to: *mut u8, length: usize) {
    // SAFETY: as the caller promises.
    unsafe { In::all(to, from, to, length) };
}

/// Reads an aligned number of message memory, at once. Later reads are not older than this one,
/// whether the device or a thread wrote it. Other threads may access its bytes meanwhile, by these
/// functions.
///
/// # Safety
/// Readable and aligned, and of at most eight bytes.
#[inline(always)]
pub unsafe fn load_message<T: MessageValue>(from: *const T) -> T {
    debug_assert!(from.is_aligned() && size_of::<T>() <= 8);
    // SAFETY: as the caller promises.
    let value = unsafe { T::load(from.cast()) };
    barrier::after_ownership();
    value
}

/// Writes an aligned number of message memory, at once. Earlier writes are not newer than this
/// one, for the device and for threads. Other threads may access its bytes meanwhile, by these
/// functions.
///
/// # Safety
/// Writable and aligned, and of at most eight bytes.
#[inline(always)]
pub unsafe fn store_message<T: MessageValue>(to: *mut T, value: T) {
    debug_assert!(to.is_aligned() && size_of::<T>() <= 8);
    barrier::before_record();
    // SAFETY: as the caller promises.
    unsafe { T::store(to.cast(), value) };
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
            let mut from = pattern(length);
            let mut to = vec![0xa5; length + 2];
            // SAFETY: `length` bytes of each, inside their vectors.
            unsafe { read_short(to.as_mut_ptr().add(1), from.as_mut_ptr(), length) };
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
                let mut from = pattern(behind + length);
                let from = &mut from[behind..];
                for copy in [read_message, write_message] {
                    let mut to = vec![0xa5; ahead + length + 1];
                    // SAFETY: `length` bytes of each, inside their vectors.
                    unsafe { copy(from.as_mut_ptr(), to.as_mut_ptr().add(ahead), length) };
                    assert_eq!(&to[ahead..ahead + length], from, "{length}");
                    assert!(to[..ahead].iter().all(|&byte| byte == 0xa5), "{length}");
                    assert_eq!(to[ahead + length], 0xa5, "{length}");
                }
            }
        }
    }

    /// In Miri, which reports a race of any two accesses that are not atomic.
    #[test]
    fn copies_may_race_with_copies_of_other_widths() {
        #[repr(align(8))]
        struct Shared([u8; 64]);
        let mut shared = Shared([0; 64]);
        let address = (&raw mut shared.0).expose_provenance();
        let at = |offset| core::ptr::with_exposed_provenance_mut::<u8>(address + offset);
        let rounds = if cfg!(miri) { 3 } else { 10_000 };
        std::thread::scope(|scope| {
            for byte in [0x00u8, 0xff] {
                scope.spawn(move || {
                    for round in 0..rounds {
                        let ours = [byte; 64];
                        // SAFETY: inside both; `shared` outlives the scope.
                        unsafe {
                            write_message(ours.as_ptr(), at(0), 64);
                            assert!(write_short(at(3), ours.as_ptr(), 1 + round % 20));
                        }
                    }
                });
            }
            for _ in 0..rounds {
                let mut seen = [[0u8; 64]; 2];
                // SAFETY: as above.
                let word = unsafe {
                    read_message(at(1), seen[0].as_mut_ptr(), 63);
                    read_short(seen[1].as_mut_ptr(), at(2), 60);
                    load_message(at(56).cast::<u64>())
                };
                assert!(word == 0 || word == u64::MAX || cfg!(miri), "{word:x}");
                assert!(
                    seen.as_flattened()
                        .iter()
                        .all(|&byte| byte == 0 || byte == 0xff)
                );
            }
        });
    }
}
