//! Big-endian integers that keep the alignment of the integer.
//!
//! Aligned on purpose: a doorbell or an ownership word must be one access, and
//! a store of a byte array of the same size need not be.

use core::fmt;

macro_rules! big_endian {
    ($name:ident, $int:ty) => {
        #[doc = concat!("A `", stringify!($int), "` whose bytes in memory are big endian.")]
        #[repr(transparent)]
        #[derive(Clone, Copy, Default, PartialEq, Eq)]
        pub struct $name($int);

        impl $name {
            /// Converts from host order.
            #[inline(always)]
            pub const fn new(value: $int) -> Self {
                Self(value.to_be())
            }

            /// Converts to host order.
            #[inline(always)]
            pub const fn get(self) -> $int {
                <$int>::from_be(self.0)
            }

            /// Returns the integer whose native bytes are these bytes: what is
            /// stored in a register or a shared cell of the integer type.
            #[inline(always)]
            pub const fn to_bits(self) -> $int {
                self.0
            }

            /// Inverts [`Self::to_bits`].
            #[inline(always)]
            pub const fn from_bits(bits: $int) -> Self {
                Self(bits)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:#x}", self.get())
            }
        }
    };
}

big_endian!(Be16, u16);
big_endian!(Be32, u32);
big_endian!(Be64, u64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_in_memory_are_big_endian() {
        assert_eq!(Be16::new(0x0102).to_bits().to_ne_bytes(), [1, 2]);
        assert_eq!(Be32::new(0x0102_0304).to_bits().to_ne_bytes(), [1, 2, 3, 4]);
        assert_eq!(
            Be64::new(0x0102_0304_0506_0708).to_bits().to_ne_bytes(),
            [1, 2, 3, 4, 5, 6, 7, 8]
        );
        assert_eq!(Be32::from_bits(Be32::new(7).to_bits()).get(), 7);
    }
}
