//! Conversion of texts.

use core::ffi::c_char;

/// Copies a text into a C array, truncated to its size and padded with NULs.
pub(crate) fn copy<const N: usize>(text: &str) -> [c_char; N] {
    let mut name = [0; N];
    for (place, byte) in name.iter_mut().take(N - 1).zip(text.bytes()) {
        *place = byte.cast_signed();
    }
    name
}
