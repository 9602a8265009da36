//! Conversion of texts.

use core::ffi::c_char;

/// Converts a byte to a character of C, which is signed on x86-64 and unsigned on aarch64.
pub(crate) const fn character(byte: u8) -> c_char {
    c_char::from_ne_bytes([byte])
}

/// Converts a character of C to its byte.
pub(crate) const fn byte(character: c_char) -> u8 {
    let [byte] = character.to_ne_bytes();
    byte
}

/// Copies a text into a C array, truncated to its size and padded with NULs.
pub(crate) fn copy<const N: usize>(text: &str) -> [c_char; N] {
    let mut name = [0; N];
    for (place, byte) in name.iter_mut().take(N - 1).zip(text.bytes()) {
        *place = character(byte);
    }
    name
}
