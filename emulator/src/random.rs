//! The random numbers of the emulator.

/// Returns a pseudo-random number that depends only on the arguments
/// (SplitMix64's output function, applied three times).
pub(crate) fn hash(seed: u64, kind: u64, count: u64) -> u64 {
    let mix = |value: u64| {
        let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ value >> 31
    };
    mix(mix(mix(seed) ^ kind) ^ count)
}
