//! `dat_strerror`.

use core::ffi::{CStr, c_char};
use core::ptr;

use dat::abi::{DAT_CLASS_WARNING, DAT_INVALID_PARAMETER, DAT_RETURN};
use dat::exports::dat_strerror;
use dat_api::{DatReturn, ReturnType, Subtype};

use crate::face::common::expect;

fn names(value: DAT_RETURN) -> Result<(String, String), DAT_RETURN> {
    let (mut major, mut minor): (*const c_char, *const c_char) = (ptr::null(), ptr::null());
    // SAFETY: both pointers are writable.
    let answer = unsafe { dat_strerror(value, &raw mut major, &raw mut minor) };
    if answer != 0 {
        assert!(major.is_null() && minor.is_null(), "nothing is written");
        return Err(answer);
    }
    let text = |name| {
        // SAFETY: the call succeeded: both are C strings that are never freed.
        let name = unsafe { CStr::from_ptr(name) };
        name.to_str().expect("ASCII").to_owned()
    };
    Ok((text(major), text(minor)))
}

#[test]
fn every_code_has_the_names_of_its_enumerators() {
    for kind in ReturnType::ALL {
        for subtype in Subtype::ALL {
            let value = kind as u32 | subtype as u32;
            let minor = match subtype {
                Subtype::NoSubtype => "",
                _ => subtype.name(),
            };
            let expected = Ok((kind.name().to_owned(), minor.to_owned()));
            // With and without the class bits.
            assert_eq!(names(value), expected);
            assert_eq!(names(value | DAT_CLASS_WARNING), expected);
            assert!(names(DatReturn::error(kind, subtype).bits()).is_ok());
        }
    }
    assert_eq!(names(0), Ok(("DAT_SUCCESS".into(), String::new())));
    assert_eq!(
        names(0x8005_000c),
        Ok(("DAT_INVALID_HANDLE".into(), "DAT_INVALID_HANDLE_EP".into()))
    );
}

#[test]
fn the_longest_names_are_whole() {
    let longest = Subtype::ALL.into_iter().max_by_key(|s| s.name().len());
    let longest = longest.expect("there are some");
    let value = DatReturn::error(ReturnType::InvalidState, longest).bits();
    assert_eq!(names(value).expect("known").1, longest.name());
}

#[test]
fn an_unknown_code_returns_no_class_bits() {
    for value in [
        0x0015_0000,
        0x8015_0000,
        0x8ffe_0000,
        0x8005_ffff,
        0x8005_0000 | Subtype::ALL.len() as u32,
        u32::MAX,
    ] {
        assert_eq!(names(value), Err(DAT_INVALID_PARAMETER), "{value:#x}");
    }
}

#[test]
fn null_results_are_refused() {
    let mut name: *const c_char = ptr::null();
    // SAFETY: null is allowed.
    let answer = unsafe { dat_strerror(0, ptr::null_mut(), &raw mut name) };
    expect(
        "major",
        answer,
        ReturnType::InvalidParameter,
        Subtype::InvalidArg2,
    );
    // SAFETY: null is allowed.
    let answer = unsafe { dat_strerror(0, &raw mut name, ptr::null_mut()) };
    expect(
        "minor",
        answer,
        ReturnType::InvalidParameter,
        Subtype::InvalidArg3,
    );
    assert!(name.is_null());
}
