//! The bytes of a message, computed from its number and from the side that sends it.

use std::fmt;

/// The bytes of one message. None of them is 0. They differ between sides, between messages, and
/// between neighbouring words; the first byte alone differs between any 128 messages in a row, so
/// that an older message is found however short messages are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pattern {
    seed: u64,
    first: u8,
}

/// The first byte that differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mismatch {
    pub(crate) offset: u32,
    pub(crate) expected: u8,
    pub(crate) found: u8,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "byte {} is 0x{:02x} instead of 0x{:02x}",
            self.offset, self.found, self.expected
        )
    }
}

impl Pattern {
    /// Any odd number with many different bytes suffices.
    const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;

    #[inline(always)]
    pub(super) fn new(side: u32, number: u64) -> Self {
        let side = mixed(side.into());
        Self {
            seed: mixed(side.wrapping_add(number)),
            first: ((side.wrapping_add(number) as u8) << 1) | 1,
        }
    }

    /// Returns 8 bytes, as they lie in memory.
    #[inline(always)]
    pub(super) fn word(self, at: usize) -> u64 {
        let word = mixed(self.seed.wrapping_add(at as u64)) | 0x0101_0101_0101_0101;
        match at {
            0 => {
                let mut bytes = word.to_ne_bytes();
                bytes[0] = self.first;
                u64::from_ne_bytes(bytes)
            }
            _ => word,
        }
    }

    /// Returns the first byte of a word that differs, in a message of this length.
    #[inline(always)]
    pub(super) fn mismatch(self, at: usize, found: u64, length: u32) -> Option<Mismatch> {
        let expected = self.word(at);
        if found == expected {
            return None;
        }
        let start = (at * size_of::<u64>()) as u32;
        let (expected, found) = (expected.to_ne_bytes(), found.to_ne_bytes());
        let bytes = start..length.min(start + size_of::<u64>() as u32);
        let differs =
            |&offset: &u32| expected[(offset - start) as usize] != found[(offset - start) as usize];
        bytes.into_iter().find(differs).map(|offset| Mismatch {
            offset,
            expected: expected[(offset - start) as usize],
            found: found[(offset - start) as usize],
        })
    }
}

/// Returns a number in which each bit depends on many.
#[inline(always)]
fn mixed(number: u64) -> u64 {
    let product = number.wrapping_mul(Pattern::FACTOR);
    product ^ (product >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_differ_between_sides_messages_and_words_and_have_no_zero() {
        for (one, other) in [(1, 2), (0x01_0001, 0x01_0002)] {
            assert_ne!(Pattern::new(one, 7).word(0), Pattern::new(other, 7).word(0));
            assert_ne!(Pattern::new(one, 7).word(3), Pattern::new(other, 7).word(3));
            for at in 0..64 {
                let word = Pattern::new(one, 7).word(at);
                assert!(!word.to_ne_bytes().contains(&0));
                assert_ne!(word, Pattern::new(one, 7).word(at + 1));
                assert_ne!(word, Pattern::new(one, 8).word(at));
            }
        }
    }

    /// A message of one byte, too.
    #[test]
    fn an_older_message_differs_in_the_first_byte() {
        let first = |number| Pattern::new(1, number).word(0).to_ne_bytes()[0];
        for back in 1..128 {
            assert_ne!(first(1000), first(1000 - back), "{back}");
        }
    }

    #[test]
    fn a_mismatch_behind_the_message_is_none() {
        let pattern = Pattern::new(1, 5);
        let mut bytes = pattern.word(1).to_ne_bytes();
        bytes[3] = !bytes[3];
        let found = u64::from_ne_bytes(bytes);
        assert_eq!(pattern.mismatch(1, found, 11), None);
        let mismatch = pattern.mismatch(1, found, 12).unwrap();
        assert_eq!((mismatch.offset, mismatch.found), (11, bytes[3]));
    }
}
