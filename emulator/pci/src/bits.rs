//! Fields of the device's structures: big-endian, numbered by bits from the first byte, as the
//! programmer's reference manual and Linux's `mlx5_ifc.h` give them.

/// A field of up to 64 bits in a structure of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Number of the first bit, the most significant one of the field.
    bit: usize,
    width: usize,
}

impl Field {
    /// Returns the field of `width` bits from bit number `bit`.
    #[must_use]
    pub const fn new(bit: usize, width: usize) -> Self {
        assert!(width >= 1 && width <= 64);
        Self { bit, width }
    }

    /// Returns the field in a structure that begins `bytes` later.
    #[cfg(test)]
    #[must_use]
    pub const fn at(self, bytes: usize) -> Self {
        Self::new(self.bit + 8 * bytes, self.width)
    }

    /// Returns the value. What is behind the end of `bytes` reads as 0.
    #[must_use]
    pub fn get(self, bytes: &[u8]) -> u64 {
        let (first, last) = self.bytes();
        let span = (first..=last).map(|at| bytes.get(at).copied().unwrap_or(0));
        let word = span.fold(0_u128, |word, byte| word << 8 | u128::from(byte));
        (word >> self.shift()) as u64 & self.mask()
    }

    /// Returns the value of a field of at most 32 bits.
    #[must_use]
    pub fn get32(self, bytes: &[u8]) -> u32 {
        self.get(bytes) as u32
    }

    /// Returns whether the value is not 0.
    #[must_use]
    pub fn is_set(self, bytes: &[u8]) -> bool {
        self.get(bytes) != 0
    }

    /// Sets the value, of which as many bits are taken as the field has. What is behind the
    /// end of `bytes` is not written.
    pub fn set(self, bytes: &mut [u8], value: u64) {
        let (first, last) = self.bytes();
        let mask = u128::from(self.mask()) << self.shift();
        let value = u128::from(value) << self.shift() & mask;
        for (at, place) in (first..=last).rev().enumerate() {
            if let Some(byte) = bytes.get_mut(place) {
                let part = |word: u128| (word >> (8 * at)) as u8;
                *byte = *byte & !part(mask) | part(value);
            }
        }
    }

    fn bytes(self) -> (usize, usize) {
        (self.bit / 8, (self.bit + self.width - 1) / 8)
    }

    /// Number of bits behind the field in its last byte.
    fn shift(self) -> usize {
        7 - (self.bit + self.width - 1) % 8
    }

    fn mask(self) -> u64 {
        u64::MAX >> (64 - self.width)
    }
}

/// Returns what follows the first `at` bytes; nothing if there are fewer.
#[must_use]
pub fn part(bytes: &[u8], at: usize) -> &[u8] {
    bytes.get(at..).unwrap_or_default()
}

/// The same as [`part`], to be changed.
pub fn part_mut(bytes: &mut [u8], at: usize) -> &mut [u8] {
    bytes.get_mut(at..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_every_place_and_width_keep_their_value_and_leave_their_neighbours() {
        for bit in 0..16 {
            for width in 1..=64 {
                let field = Field::new(bit, width);
                let value = 0x9abc_def1_2345_6789 & field.mask();
                for around in [0, 0xff] {
                    let mut bytes = [around; 12];
                    field.set(&mut bytes, value);
                    assert_eq!(field.get(&bytes), value, "bit {bit}, width {width}");
                    field.set(&mut bytes, if around == 0 { 0 } else { u64::MAX });
                    assert_eq!(bytes, [around; 12], "bit {bit}, width {width}");
                }
            }
        }
    }

    #[test]
    fn the_first_bit_is_the_highest_of_the_first_byte() {
        assert_eq!(Field::new(0, 4).get(&[0xa5]), 0xa);
        assert_eq!(Field::new(4, 4).get(&[0xa5]), 0x5);
        assert_eq!(Field::new(4, 8).get(&[0xa5, 0xc0]), 0x5c);
        assert_eq!(
            Field::new(0, 32).at(4).get(&[0, 0, 0, 0, 1, 2, 3, 4]),
            0x0102_0304
        );
    }

    #[test]
    fn nothing_is_behind_the_end() {
        let mut bytes = [0xff; 2];
        let field = Field::new(8, 16);
        assert_eq!(field.get(&bytes), 0xff00);
        field.set(&mut bytes, 0x1234);
        assert_eq!(bytes, [0xff, 0x12]);
        assert!(part(&bytes, 3).is_empty() && part_mut(&mut bytes, 2).is_empty());
    }
}
