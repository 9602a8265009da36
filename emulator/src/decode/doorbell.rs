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
