//! Handles of all kinds, and checks of return codes.

use std::sync::Arc;

use dat::abi::{DAT_HANDLE, DAT_HANDLE_NULL, DAT_RETURN};
use dat_api::handle::{Object, publish_for_test, retire_for_test};
use dat_api::{DatReturn, Handle, Kind, ReturnType, Subtype};

/// An object of which only the handle and its kind matter. For a kind whose
/// objects have contents, it may be passed only where another kind is expected.
pub(crate) struct TestObject<const KIND: u8>;

// SAFETY: no test looks up the object behind the handle of a `TestObject`.
unsafe impl<const KIND: u8> Object for TestObject<KIND> {
    const KIND: Kind = Kind::ALL[KIND as usize];
}

fn publish<const KIND: u8>() -> Handle {
    // SAFETY: the object is new.
    unsafe { publish_for_test(Arc::new(TestObject::<KIND>)) }.expect("a slot")
}

fn stale_of<const KIND: u8>() -> Handle {
    let handle = publish::<KIND>();
    // SAFETY: it was published above, and no thread uses it.
    unsafe { retire_for_test::<TestObject<KIND>>(handle) }.expect("live");
    handle
}

macro_rules! by_kind {
    ($function:ident, $kind:expr) => {
        match $kind {
            Kind::Cr => $function::<0>(),
            Kind::Ep => $function::<1>(),
            Kind::Evd => $function::<2>(),
            Kind::Ia => $function::<3>(),
            Kind::Lmr => $function::<4>(),
            Kind::Psp => $function::<5>(),
            Kind::Pz => $function::<6>(),
            Kind::Rmr => $function::<7>(),
            Kind::Rsp => $function::<8>(),
            Kind::Cno => $function::<9>(),
            Kind::Srq => $function::<10>(),
        }
    };
}

/// Returns a live handle of a kind, with no contents.
pub(crate) fn live(kind: Kind) -> DAT_HANDLE {
    to_c(by_kind!(publish, kind))
}

/// Returns a handle of a kind whose object was freed.
pub(crate) fn stale(kind: Kind) -> DAT_HANDLE {
    to_c(by_kind!(stale_of, kind))
}

pub(crate) fn to_c(handle: Handle) -> DAT_HANDLE {
    core::ptr::with_exposed_provenance_mut(handle.bits())
}

/// Returns values that are not the handle of a live object of any kind.
pub(crate) fn garbage(kind: Kind) -> Vec<(String, DAT_HANDLE)> {
    let address = core::ptr::without_provenance_mut::<core::ffi::c_void>;
    let local = 0_u64;
    let near = live(kind);
    let mut all: Vec<(String, DAT_HANDLE)> = vec![
        ("a number below 4096".into(), address(1)),
        ("DAT_EVD_OUT_OF_SCOPE".into(), address(2)),
        ("an unmapped address".into(), address(0xdead_beef_0000)),
        (
            "not a user-space address".into(),
            address(0x8000_0000_0000_0000),
        ),
        ("all ones".into(), address(usize::MAX)),
        ("a variable".into(), (&raw const local).cast_mut().cast()),
        (
            "the heap".into(),
            Box::leak(Box::new(0_u64) as Box<u64>) as *mut u64 as DAT_HANDLE,
        ),
        ("inside a slot".into(), near.wrapping_byte_add(8)),
        ("a byte off".into(), near.wrapping_byte_add(1)),
        ("a slot never used".into(), near.wrapping_byte_add(64 << 19)),
    ];
    all.push(("a freed object".into(), stale(kind)));
    all
}

/// Returns everything that is not a handle of a kind, null first.
pub(crate) fn wrong(kind: Kind) -> Vec<(String, DAT_HANDLE)> {
    let mut all = vec![("null".to_owned(), DAT_HANDLE_NULL)];
    all.extend(garbage(kind));
    let others = Kind::ALL.into_iter().filter(|&other| other != kind);
    all.extend(others.map(|other| (format!("a live {other:?}"), live(other))));
    all
}

/// Asserts a return code.
#[track_caller]
pub(crate) fn expect(what: &str, answer: DAT_RETURN, kind: ReturnType, subtype: Subtype) {
    let expected = DatReturn::error(kind, subtype);
    let answer = DatReturn::from_bits(answer);
    assert_eq!(answer, expected, "{what}");
}

/// Asserts that a call succeeded.
#[track_caller]
pub(crate) fn success(what: &str, answer: DAT_RETURN) {
    assert_eq!(DatReturn::from_bits(answer), DatReturn::SUCCESS, "{what}");
}
