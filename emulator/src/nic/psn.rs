//! Packet sequence numbers: 24 bits, compared modulo 2^24 (IBA 9.7.1).

/// Mask of the bits of a PSN.
pub(super) const MASK: u32 = 0x00ff_ffff;

/// Returns `psn` advanced by `packets`.
#[must_use]
pub(super) fn add(psn: u32, packets: u32) -> u32 {
    psn.wrapping_add(packets) & MASK
}

/// Returns the distance from `from` to `psn`: negative if `psn` is before it.
#[must_use]
pub(super) fn distance(psn: u32, from: u32) -> i32 {
    // The difference is sign-extended from 24 to 32 bits.
    (psn.wrapping_sub(from) << 8).cast_signed() >> 8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_wrap_around() {
        assert_eq!(distance(3, 0xff_fffe), 5);
        assert_eq!(distance(0xff_fffe, 3), -5);
        assert_eq!(distance(7, 7), 0);
        assert_eq!(distance(0x7f_ffff, 0), 0x7f_ffff);
        assert_eq!(distance(0x80_0000, 0), -0x80_0000);
        assert_eq!(add(0xff_ffff, 1), 0);
    }
}
