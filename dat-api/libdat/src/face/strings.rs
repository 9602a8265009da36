//! Names as C strings, made when the library is compiled.

use core::ffi::{CStr, c_char};

use dat_api::{ReturnType, Subtype};

/// Bytes of the longest name with its NUL, rounded up.
const BYTES: usize = 48;

type Name = [u8; BYTES];

const fn name(text: &str) -> Name {
    let bytes = text.as_bytes();
    assert!(bytes.len() < BYTES);
    let mut name = [0; BYTES];
    let mut at = 0;
    while at < bytes.len() {
        name[at] = bytes[at];
        at += 1;
    }
    name
}

static TYPES: [Name; ReturnType::ALL.len()] = {
    let mut names = [[0; BYTES]; ReturnType::ALL.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = name(ReturnType::ALL[at].name());
        at += 1;
    }
    names
};

static SUBTYPES: [Name; Subtype::ALL.len()] = {
    let mut names = [[0; BYTES]; Subtype::ALL.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = name(Subtype::ALL[at].name());
        at += 1;
    }
    names
};

fn c_string(name: &'static Name) -> &'static CStr {
    // The last byte is always NUL: `name` asserts it.
    CStr::from_bytes_until_nul(name).unwrap_or(c"")
}

/// The name of a type.
pub(crate) fn of_type(kind: ReturnType) -> &'static CStr {
    match ReturnType::ALL.into_iter().position(|other| other == kind) {
        Some(at) => c_string(&TYPES[at]),
        None => c"",
    }
}

/// The name of a subtype; empty if there is no detail.
pub(crate) fn of_subtype(subtype: Subtype) -> &'static CStr {
    match Subtype::ALL.into_iter().position(|other| other == subtype) {
        Some(at) if subtype != Subtype::NoSubtype => c_string(&SUBTYPES[at]),
        _ => c"",
    }
}

/// Copies a text into an array of C, cut where it does not fit. What remains
/// is NUL.
pub(crate) fn copy<const N: usize>(text: &str) -> [c_char; N] {
    let mut name = [0; N];
    for (place, byte) in name.iter_mut().take(N - 1).zip(text.bytes()) {
        *place = byte.cast_signed();
    }
    name
}
