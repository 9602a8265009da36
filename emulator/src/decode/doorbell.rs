//! The 8 bytes stored to a doorbell page.

/// The arm word of a CQ (PRM "CQ doorbell record"). `mlx5_arm_cq` writes it to the
/// doorbell record and, with the CQ number, to offset 0x20 of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArmWord {
    /// Two-bit sequence number: the number of completion events that were read.
    pub sequence: u8,
    /// Whether only a solicited (or failed) completion fires the event.
    pub solicited_only: bool,
    /// The consumer index, 24 bits.
    pub consumer: u32,
}

impl ArmWord {
    /// Parses the word in host byte order.
    #[must_use]
    pub fn parse(word: u32) -> Self {
        Self {
            sequence: (word >> 28 & 3) as u8,
            solicited_only: word >> 24 & 1 != 0,
            consumer: word & 0x00ff_ffff,
        }
    }

    /// Returns whether software may have written this word after `earlier`: more
    /// events were read, or more completions consumed.
    #[must_use]
    pub fn is_after(self, earlier: Self) -> bool {
        match self.sequence.wrapping_sub(earlier.sequence) & 3 {
            0 => {
                let ahead = self.consumer.wrapping_sub(earlier.consumer) & 0x00ff_ffff;
                ahead != 0 && ahead < 1 << 23
            }
            // The other half of the sequence numbers is earlier.
            events => events <= 2,
        }
    }
}

/// Splits the arm doorbell into {arm word, CQ number}, both big-endian.
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
    fn a_word_is_after_another_if_events_or_completions_were_consumed_between() {
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
    fn the_arm_word_has_the_layout_of_libmlx5() {
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
