//! Texts for C.

use core::ffi::c_char;

/// Copies a text into an array of C, cut where it does not fit. What remains
/// is NUL.
pub(crate) fn copy<const N: usize>(text: &str) -> [c_char; N] {
    let mut name = [0; N];
    for (place, byte) in name.iter_mut().take(N - 1).zip(text.bytes()) {
        *place = byte.cast_signed();
    }
    name
}
