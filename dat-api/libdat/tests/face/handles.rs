//! Every call that takes a handle, with every value that is not such a handle
//! (W17, L06, Q07, R13, E10). No device is needed, because a call validates the
//! handle first.

use core::ptr::null_mut;
use std::collections::BTreeSet;

use dat::abi::*;
use dat::exports::*;
use dat_api::{Kind, ReturnType, Subtype};

use crate::abi::facts::exports;
use crate::face::calls::{Call, calls};
use crate::face::common::{expect, garbage, live, stale, success, wrong};

#[test]
fn the_table_has_every_call_that_takes_a_handle() {
    let without = [
        "dat_ia_openv",
        "dat_strerror",
        "dat_strevent",
        "dat_strdtostatus",
        "dat_strepstate",
        "dat_registry_list_providers",
        "dat_registry_add_provider",
        "dat_registry_remove_provider",
        "dat_provider_init",
        "dat_provider_fini",
    ];
    let exported: BTreeSet<_> = exports().filter(|name| !without.contains(name)).collect();
    let here: BTreeSet<_> = calls().into_iter().map(|call| call.name).collect();
    assert_eq!(here, exported);
}

#[test]
fn w17_l06_q07_r13_e10_a_bad_handle_is_invalid_whatever_it_is() {
    for Call {
        name,
        kind,
        subtype,
        call,
    } in calls()
    {
        let handles = match kind {
            Ok(kind) => wrong(kind),
            Err(_) => {
                let mut handles = garbage(Kind::Ep);
                handles.push(("null".into(), DAT_HANDLE_NULL));
                handles
            }
        };
        for (what, handle) in handles {
            // SAFETY: the call validates its handle.
            let answer = unsafe { call(handle) };
            expect(
                &format!("{name} of {what}"),
                answer,
                ReturnType::InvalidHandle,
                subtype,
            );
        }
    }
}

#[test]
fn every_kind_of_object_has_a_context_and_a_type() {
    for kind in Kind::ALL {
        let handle = live(kind);
        let mut context = DAT_CONTEXT { as_64: 1 };
        let mut number = DAT_HANDLE_TYPE::MAX;
        // SAFETY: the results have room.
        unsafe {
            success("get", dat_get_consumer_context(handle, &raw mut context));
            assert_eq!(context.as_64, 0, "zero at first");
            for value in [u64::MAX, 7, 0] {
                let given = DAT_CONTEXT { as_64: value };
                success("set", dat_set_consumer_context(handle, given));
                success("get", dat_get_consumer_context(handle, &raw mut context));
                assert_eq!(context.as_64, value);
            }
            success("type", dat_get_handle_type(handle, &raw mut number));
            assert_eq!(number, kind as DAT_HANDLE_TYPE);
            for answer in [
                dat_get_consumer_context(handle, null_mut()),
                dat_get_handle_type(handle, null_mut()),
            ] {
                expect(
                    "null",
                    answer,
                    ReturnType::InvalidParameter,
                    Subtype::InvalidArg2,
                );
            }
        }
    }
}

#[test]
fn a_context_is_gone_with_its_object() {
    let handle = stale(Kind::Srq);
    let mut context = DAT_CONTEXT { as_64: 5 };
    // SAFETY: the result has room.
    let answer = unsafe { dat_get_consumer_context(handle, &raw mut context) };
    expect(
        "stale",
        answer,
        ReturnType::InvalidHandle,
        Subtype::InvalidHandle1,
    );
    // SAFETY: any 64 bits are a number.
    assert_eq!(unsafe { context.as_64 }, 5, "untouched");
}

#[test]
fn opening_checks_its_pointers_before_it_looks_for_an_adapter() {
    let mut evd = DAT_HANDLE_NULL;
    let mut ia = DAT_HANDLE_NULL;
    let open = |name: *mut core::ffi::c_char, length, evd, ia| {
        // SAFETY: null, or a valid pointer.
        unsafe { dat_ia_openv(name, length, evd, ia, 1, 2, DAT_FALSE) }
    };
    let name = |text: &core::ffi::CStr| text.as_ptr().cast_mut();
    let long = std::ffi::CString::new("x".repeat(256)).expect("no NUL");
    let fits = std::ffi::CString::new("x".repeat(255)).expect("no NUL");
    let (evd, ia) = (&raw mut evd, &raw mut ia);
    let parameter = ReturnType::InvalidParameter;
    for (what, answer, kind, subtype) in [
        (
            "no name",
            open(null_mut(), 1, evd, ia),
            parameter,
            Subtype::InvalidArg1,
        ),
        (
            "long name",
            open(name(&long), 1, evd, ia),
            parameter,
            Subtype::InvalidArg1,
        ),
        (
            "no IA",
            open(name(c"x"), 1, evd, null_mut()),
            ReturnType::InvalidHandle,
            Subtype::InvalidHandleIa,
        ),
        (
            "no EVD",
            open(name(c"x"), 1, null_mut(), ia),
            parameter,
            Subtype::InvalidArg3,
        ),
        (
            "length 0",
            open(name(c"x"), 0, evd, ia),
            parameter,
            Subtype::InvalidArg2,
        ),
        (
            "length -1",
            open(name(c"x"), -1, evd, ia),
            parameter,
            Subtype::InvalidArg2,
        ),
        (
            "not UTF-8",
            open(name(c"\xff"), 1, evd, ia),
            ReturnType::ProviderNotFound,
            Subtype::NameNotRegistered,
        ),
    ] {
        expect(what, answer, kind, subtype);
    }
    let answer = open(name(&fits), 1, evd, ia);
    let kind = dat_api::DatReturn::from_bits(answer).kind();
    assert_eq!(
        kind,
        Some(ReturnType::ProviderNotFound),
        "255 bytes are a name"
    );
    for (what, mut bad) in wrong(Kind::Evd) {
        // Null requests a new EVD; DAT_EVD_ASYNC_EXISTS says that there is one.
        if bad == DAT_HANDLE_NULL || bad == DAT_EVD_ASYNC_EXISTS {
            continue;
        }
        expect(
            &what,
            open(name(c"x"), 1, &raw mut bad, ia),
            ReturnType::InvalidHandle,
            Subtype::InvalidHandleEvdAsync,
        );
    }
}
