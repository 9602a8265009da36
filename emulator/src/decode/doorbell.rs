//! The 8 bytes stored on a doorbell page.

/// A CQ arm: PRM "CQ doorbell record", and the same word twice in
/// `mlx5_arm_cq`: in the record and, with the CQ number, at offset 0x20.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArmWord {
    /// Two-bit sequence number: the completion events the driver has read.
    pub sequence: u8,
    /// Only a solicited (or failed) completion is to notify.
    pub solicited_only: bool,
    /// The consumer index, 24 bits.
    pub consumer: u32,
}

impl ArmWord {
    /// Reads the word as the record holds it (host order).
    #[must_use]
    pub fn parse(word: u32) -> Self {
        Self {
            sequence: (word >> 28 & 3) as u8,
            solicited_only: word >> 24 & 1 != 0,
            consumer: word & 0x00ff_ffff,
        }
    }

    /// Whether software can have written this word after `earlier`: more events
    /// are read, or more completions consumed.
    #[must_use]
    pub fn is_after(self, earlier: Self) -> bool {
        match self.sequence.wrapping_sub(earlier.sequence) & 3 {
            0 => {
                let ahead = self.consumer.wrapping_sub(earlier.consumer) & 0x00ff_ffff;
                ahead != 0 && ahead < 1 << 23
            }
            // The other half of the numbers is behind.
            events => events <= 2,
        }
    }
}

/// The arm doorbell: {arm word, CQ number}, both big-endian.
#[must_use]
pub fn parse_arm(bytes: [u8; 8]) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = bytes;
    (
        u32::from_be_bytes([a, b, c, d]),
        u32::from_be_bytes([e, f, g, h]) & 0x00ff_ffff,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_after_another_if_events_or_completions_were_taken_in_between() {
        let word = |sequence, consumer| ArmWord {
            sequence,
            solicited_only: false,
            consumer,
        };
        let first = word(3, 0x00ff_ffff);
        assert!(!first.is_after(first));
        assert!(word(0, 0x00ff_ffff).is_after(first));
        assert!(word(3, 5).is_after(first));
        assert!(!first.is_after(word(3, 5)));
        assert!(!first.is_after(word(0, 0x00ff_ffff)));
    }

    #[test]
    fn arm_word_fields_are_where_libmlx5_puts_them() {
        // sn << 28 | MLX5_CQ_DB_REQ_NOT_SOL | ci
        let word = 3 << 28 | 1 << 24 | 0x12_3456;
        let arm = ArmWord::parse(word);
        assert_eq!(
            arm,
            ArmWord {
                sequence: 3,
                solicited_only: true,
                consumer: 0x12_3456
            }
        );
        assert_eq!(
            parse_arm([0x31, 0x12, 0x34, 0x56, 0, 0, 1, 7]),
            (word, 0x107)
        );
    }
}
