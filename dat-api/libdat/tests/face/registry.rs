//! `dat_registry_list_providers`, and adding and removing providers.

use core::ffi::CStr;
use core::mem::MaybeUninit;
use core::ptr::{null, null_mut};
use std::sync::Once;

use dat::abi::*;
use dat::exports::*;
use dat_api::{ReturnType, Subtype};

use crate::face::common::{expect, success};

const ENTRIES: &str = "\
# a comment
one u1.2 nonthreadsafe default libdat.so.1 dapl.1.2 \"mlx5_0 1\" \"\"
two u1.2 threadsafe default libc.so.6 dapl.1.2 \"ib0 0\" \"\"
three u2.0 nonthreadsafe default libdat2.so.2 dapl.2.0 \"mlx5_0 1\" \"\"
";

/// Sets a dat.conf with these entries; devices of this machine may follow them.
fn with_file() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
        let file = folder.join("face-dat.conf");
        // Other processes read it meanwhile.
        let new = folder.join(format!("face-dat.conf.{}", std::process::id()));
        std::fs::write(&new, ENTRIES).expect("the file can be written");
        std::fs::rename(&new, &file).expect("the file can be replaced");
        // SAFETY: code in this binary reads the environment after this call, or
        // through Rust, which locks it.
        unsafe { std::env::set_var("DAT_OVERRIDE", file) };
    });
}

fn list(room: DAT_COUNT, places: *mut *mut DAT_PROVIDER_INFO) -> (DAT_RETURN, DAT_COUNT) {
    let mut count = -7;
    // SAFETY: the count is writable, and the caller passes a valid array.
    let answer = unsafe { dat_registry_list_providers(room, &raw mut count, places) };
    (answer, count)
}

const TOO_SMALL: (ReturnType, Subtype) = (ReturnType::InvalidParameter, Subtype::InvalidArg1);

#[test]
fn entries_are_copied_and_counted() {
    with_file();
    let (answer, total) = list(0, null_mut());
    expect(
        "no room asks for the count",
        answer,
        TOO_SMALL.0,
        TOO_SMALL.1,
    );
    assert!(total >= 3, "{total}");

    let room = usize::try_from(total).expect("a count") + 2;
    let mut infos = vec![MaybeUninit::<DAT_PROVIDER_INFO>::uninit(); room];
    let mut places: Vec<_> = infos.iter_mut().map(MaybeUninit::as_mut_ptr).collect();
    // Not read: there are fewer entries.
    places[room - 1] = null_mut();
    let (answer, count) = list(total + 2, places.as_mut_ptr());
    success("room to spare", answer);
    assert_eq!(count, total);
    let of_file: Vec<_> = infos[..3]
        .iter()
        // SAFETY: the call has written them.
        .map(|info| unsafe { info.assume_init_ref() })
        .map(|info| {
            // SAFETY: the rest of the array is NUL.
            let name = unsafe { CStr::from_ptr(info.ia_name.as_ptr()) };
            (
                name.to_str().expect("ASCII").to_owned(),
                info.dapl_version_major,
                info.dapl_version_minor,
                info.is_thread_safe,
            )
        })
        .collect();
    assert_eq!(
        of_file,
        [
            ("one".to_owned(), 1, 2, DAT_FALSE),
            ("two".to_owned(), 1, 2, DAT_TRUE),
            ("three".to_owned(), 2, 0, DAT_FALSE),
        ]
    );
    let (answer, count) = list(total, places.as_mut_ptr());
    success("exactly enough room", answer);
    assert_eq!(count, total);
}

/// Strict mode is tested in `tests/dat/habits/registry.rs`.
#[test]
fn too_little_room_returns_the_entries_that_fit_and_their_number() {
    with_file();
    let mut infos = [const { MaybeUninit::<DAT_PROVIDER_INFO>::zeroed() }; 2];
    let mut places = infos.each_mut().map(MaybeUninit::as_mut_ptr);
    let (answer, count) = list(1, places.as_mut_ptr());
    success("room for one", answer);
    assert_eq!(count, 1);
    // SAFETY: zero is valid.
    let [first, second] = infos.map(|info| unsafe { info.assume_init() }.ia_name);
    assert_eq!(
        first[..4].iter().map(|&c| c as u8).collect::<Vec<_>>(),
        b"one\0"
    );
    assert_eq!(second[0], 0, "untouched");
}

#[test]
fn null_pointers_and_negative_room_are_refused() {
    with_file();
    // SAFETY: null is allowed.
    let answer = unsafe { dat_registry_list_providers(1, null_mut(), null_mut()) };
    expect(
        "count",
        answer,
        ReturnType::InvalidParameter,
        Subtype::InvalidArg2,
    );
    let (answer, count) = list(1, null_mut());
    expect(
        "list",
        answer,
        ReturnType::InvalidParameter,
        Subtype::InvalidArg3,
    );
    assert_eq!(count, -7, "untouched");
    let mut place = null_mut();
    let (answer, count) = list(1, &raw mut place);
    expect(
        "element",
        answer,
        ReturnType::InvalidParameter,
        Subtype::InvalidArg3,
    );
    assert_eq!(count, -7, "untouched");
    let (answer, _) = list(-1, &raw mut place);
    expect(
        "negative",
        answer,
        ReturnType::InvalidParameter,
        Subtype::InvalidArg1,
    );
}

#[test]
fn a_provider_is_added_once_and_removed_once() {
    let mut table = dat::PROVIDER;
    let mut info = DAT_PROVIDER_INFO {
        ia_name: [0; 256],
        dapl_version_major: 1,
        dapl_version_minor: 2,
        is_thread_safe: DAT_FALSE,
    };
    info.ia_name[0] = b'x'.cast_signed();
    let mut endless = info;
    endless.ia_name = [b'x'.cast_signed(); 256];
    for call in [dat_registry_add_provider, dat_registry_remove_provider] {
        // SAFETY: null, or a valid table and key.
        let call = |table, info| unsafe { call(table, info) };
        let refused = |what, answer, argument| {
            expect(what, answer, ReturnType::InvalidParameter, argument);
        };
        refused(
            "table",
            call(null_mut(), &raw const info),
            Subtype::InvalidArg1,
        );
        refused("key", call(&raw mut table, null()), Subtype::InvalidArg2);
        refused(
            "a name without an end",
            call(&raw mut table, &raw const endless),
            Subtype::InvalidArg2,
        );
    }
    // SAFETY: a valid table and key.
    let mut add = |info: &DAT_PROVIDER_INFO| unsafe {
        dat_registry_add_provider(&raw mut table, &raw const *info)
    };
    assert_eq!(add(&info), 0);
    expect(
        "again",
        add(&info),
        ReturnType::ProviderAlreadyRegistered,
        Subtype::NoSubtype,
    );
    // A different value of any part makes another key.
    let mut safe = info;
    safe.is_thread_safe = 1;
    let mut later = info;
    later.dapl_version_minor = 3;
    for other in [&safe, &later] {
        assert_eq!(add(other), 0);
    }
    let mut table = dat::PROVIDER;
    for key in [&info, &safe, &later] {
        // SAFETY: a valid table and key.
        let mut remove =
            || unsafe { dat_registry_remove_provider(&raw mut table, &raw const *key) };
        assert_eq!(remove(), 0);
        expect(
            "again",
            remove(),
            ReturnType::InvalidParameter,
            Subtype::InvalidArg2,
        );
    }
    // SAFETY: the functions check for null, and return nothing.
    unsafe {
        dat_provider_init(null(), null());
        dat_provider_fini(null());
    }
}
