//! The calls without a handle.

use core::ffi::c_char;
use core::ptr::{null, null_mut};

use dat::abi::*;
use dat::exports::*;
use dat_api::{DatReturn, ReturnType, Subtype};

use crate::refusals::printing::{is_one_line, printed, printing, refused_on};

/// The calls that have a row here.
pub(crate) const NAMES: [&str; 10] = [
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

const BAD: ReturnType = ReturnType::InvalidParameter;

#[test]
fn calls_without_a_handle_say_their_cause() {
    printing(
        "without_handle::calls_without_a_handle_say_their_cause",
        || {
            let [
                open,
                strerror,
                strevent,
                strstatus,
                strstate,
                list,
                add,
                remove,
                init,
                fini,
            ] = NAMES;
            let (mut ia, mut evd) = (DAT_HANDLE_NULL, DAT_HANDLE_NULL);
            let (ia, evd) = (&raw mut ia, &raw mut evd);
            let openv = |name: *mut core::ffi::c_char, length, evd, ia| {
                // SAFETY: a name or null, and writable pointers or null.
                unsafe { dat_ia_openv(name, length, evd, ia, 1, 2, DAT_FALSE) }
            };
            let name = c"no_such\ndevice".as_ptr().cast_mut();
            let subject = r#"("no_such\ndevice")"#;
            let arg = |argument| (BAD, argument);
            refused_on(
                (open, ""),
                arg(Subtype::InvalidArg1),
                &["the name is null", "expected"],
                || openv(null_mut(), 1, evd, ia),
            );
            refused_on(
                (open, subject),
                (ReturnType::InvalidHandle, Subtype::InvalidHandleIa),
                &["null", "expected"],
                || openv(name, 1, evd, null_mut()),
            );
            refused_on(
                (open, subject),
                arg(Subtype::InvalidArg2),
                &["-7", "expected 1 or more"],
                || openv(name, -7, evd, ia),
            );
            refused_on(
                (open, subject),
                arg(Subtype::InvalidArg3),
                &["null", "expected"],
                || openv(name, 1, null_mut(), ia),
            );
            let not_found = (ReturnType::ProviderNotFound, Subtype::NameNotRegistered);
            refused_on((open, subject), not_found, &["no_such"], || {
                openv(name, 1, evd, ia)
            });

            let (mut major, mut minor) = (null(), null());
            let (major, minor) = (&raw mut major, &raw mut minor);
            // SAFETY: writable pointers, or null.
            let name_of = |value, major, minor| unsafe { dat_strerror(value, major, minor) };
            refused_on(
                (strerror, ""),
                arg(Subtype::InvalidArg2),
                &["null", "expected"],
                || name_of(0, null_mut(), minor),
            );
            refused_on(
                (strerror, ""),
                arg(Subtype::InvalidArg3),
                &["null", "expected"],
                || name_of(0, major, null_mut()),
            );
            let (answer, text) = printed(|| name_of(0x8005_ffff, major, minor));
            let head = format!("libdat: dat_strerror: {}: ", DatReturn::from_bits(answer));
            is_one_line(&text, &head, &["0x8005ffff", "expected a code"]);

            type Namer = unsafe extern "C" fn(u32, *mut *const c_char) -> DAT_RETURN;
            let namers: [(&str, Namer, &str); 3] = [
                (strevent, dat_strevent, "event number"),
                (strstatus, dat_strdtostatus, "status"),
                (strstate, dat_strepstate, "state"),
            ];
            for (call, namer, what) in namers {
                let place = arg(Subtype::InvalidArg2);
                // SAFETY: a null pointer is refused.
                refused_on((call, ""), place, &["null", "expected"], || unsafe {
                    namer(1, null_mut())
                });
                let value = arg(Subtype::InvalidArg1);
                // SAFETY: a writable pointer.
                refused_on(
                    (call, ""),
                    value,
                    &[what, "0x63", "expected one"],
                    || unsafe { namer(99, major) },
                );
            }

            let mut count = 0;
            let count = &raw mut count;
            // SAFETY: a writable count, and no list.
            let listed =
                |room, count| unsafe { dat_registry_list_providers(room, count, null_mut()) };
            refused_on(
                (list, ""),
                arg(Subtype::InvalidArg2),
                &["null", "expected"],
                || listed(0, null_mut()),
            );
            refused_on(
                (list, ""),
                arg(Subtype::InvalidArg1),
                &["-3", "expected 0 or more"],
                || listed(-3, count),
            );
            refused_on(
                (list, ""),
                arg(Subtype::InvalidArg3),
                &["null", "expected"],
                || listed(1, count),
            );

            // SAFETY: memory of numbers and pointers, for which 0 is a value.
            let mut table: DAT_PROVIDER = unsafe { core::mem::zeroed() };
            // SAFETY: as above.
            let mut info: DAT_PROVIDER_INFO = unsafe { core::mem::zeroed() };
            info.ia_name[0] = b'x'.cast_signed();
            let (table, info) = (&raw mut table, &raw const info);
            for (call, function) in [
                (
                    add,
                    dat_registry_add_provider as unsafe extern "C" fn(_, _) -> _,
                ),
                (remove, dat_registry_remove_provider),
            ] {
                // SAFETY: valid pointers, or null.
                refused_on(
                    (call, ""),
                    arg(Subtype::InvalidArg1),
                    &["null", "expected"],
                    || unsafe { function(null_mut(), info) },
                );
                // SAFETY: as above.
                refused_on(
                    (call, ""),
                    arg(Subtype::InvalidArg2),
                    &["null", "expected"],
                    || unsafe { function(table, null()) },
                );
            }
            // SAFETY: valid pointers.
            refused_on(
                (remove, ""),
                arg(Subtype::InvalidArg2),
                &["\"x\"", "registered"],
                || unsafe { dat_registry_remove_provider(table, info) },
            );

            // SAFETY: null is checked.
            let init_null = || unsafe { dat_provider_init(null(), null()) };
            // SAFETY: null is checked.
            let fini_null = || unsafe { dat_provider_fini(null()) };
            for (call, function) in [(init, init_null as fn()), (fini, fini_null)] {
                let ((), text) = printed(function);
                let code = DatReturn::error(BAD, Subtype::InvalidArg1);
                is_one_line(
                    &text,
                    &format!("libdat: {call}: {code}: "),
                    &["null", "expected"],
                );
            }
        },
    );
}

const ENTRIES: &str = "\
one u1.2 nonthreadsafe default libdat.so.1 udapl.1.2 \"mlx5_0 1\" \"sl=3\"
broken line
two u1.2 nonthreadsafe default libdat.so.1 udapl.1.2 \"mlx5_0 1\" \"\"
three u1.2 nonthreadsafe default libc.so.6 dapl.1.2 \"ib0 0\" \"\"
";

/// Returns the number of all entries, with no room for them.
fn number_of_entries() -> DAT_COUNT {
    let mut count = 0;
    // SAFETY: a writable count, and no list.
    unsafe { dat_registry_list_providers(0, &raw mut count, null_mut()) };
    count
}

#[test]
fn a_list_with_too_little_room_says_how_many_entries_there_are() {
    printing(
        "without_handle::a_list_with_too_little_room_says_how_many_entries_there_are",
        || {
            let list = "dat_registry_list_providers";
            let file = std::env::temp_dir().join(format!("dat-room-{}", std::process::id()));
            std::fs::write(&file, ENTRIES).expect("a file");
            // SAFETY: this process has one test, and no other thread reads the environment.
            unsafe { std::env::set_var("DAT_OVERRIDE", &file) };
            let place = format!(
                "libdat: {}:2: this line is ignored: 2 fields",
                file.display()
            );
            let (all, text) = printed(number_of_entries);
            assert!(all >= 4, "three entries and a device: {all}");
            // The line of the file is reported once, by the first call that reads it.
            let (first, rest) = text.split_once('\n').expect("a line");
            assert!(first.starts_with(&place), "{text}");
            let said = [
                &*format!("pass {all} pointers or more"),
                "max_to_return is 0",
            ];
            is_one_line(rest, &format!("libdat: {list}: "), &said);

            // SAFETY: numbers, for which 0 is a value.
            let mut infos: [DAT_PROVIDER_INFO; 2] = unsafe { core::mem::zeroed() };
            let mut places = infos.each_mut().map(core::ptr::from_mut);
            let mut count = 0;
            let mut two = || {
                // SAFETY: a writable count, and room for two entries.
                unsafe { dat_registry_list_providers(2, &raw mut count, places.as_mut_ptr()) }
            };
            refused_on(
                (list, ""),
                (BAD, Subtype::InvalidArg1),
                &said[..1],
                &mut two,
            );
            // SAFETY: as above.
            unsafe { std::env::set_var("DAT_STRICT", "0") };
            let (answer, text) = printed(two);
            assert_eq!((answer, count), (0, 2), "{text}");
            is_one_line(
                &text,
                &format!("libdat: {list}: 2 of {all} entries copied"),
                &["max_to_return is 2", said[0]],
            );
            std::fs::remove_file(&file).expect("ours");
        },
    );
}

/// A program reads dat.conf twice when it opens an adapter.
#[test]
fn an_open_reports_each_line_of_dat_conf_once() {
    printing(
        "without_handle::an_open_reports_each_line_of_dat_conf_once",
        || {
            let file = std::env::temp_dir().join(format!("dat-lines-{}", std::process::id()));
            std::fs::write(&file, ENTRIES).expect("a file");
            // SAFETY: this process has one test, and no other thread reads the environment.
            unsafe { std::env::set_var("DAT_OVERRIDE", &file) };
            let open = || {
                let (mut ia, mut evd) = (DAT_HANDLE_NULL, DAT_HANDLE_NULL);
                let (name, ia) = (c"one".as_ptr().cast_mut(), &raw mut ia);
                // SAFETY: a name, and writable pointers.
                unsafe { dat_ia_openv(name, 8, &raw mut evd, ia, 1, 2, DAT_FALSE) }
            };
            // Whether there is a device `mlx5_0` does not matter.
            let (_, text) = printed(open);
            let count = |text: &str, words: &str| text.matches(words).count();
            let place = |line: u32| format!("libdat: {}:{line}: ", file.display());
            assert_eq!(count(&text, &place(2)), 1, "{text}");
            assert_eq!(count(&text, &format!("{}field 8", place(1))), 1, "{text}");
            let (_, text) = printed(open);
            assert_eq!(
                count(&text, &place(2)) + count(&text, "field 8"),
                0,
                "{text}"
            );
            std::fs::remove_file(&file).expect("ours");
        },
    );
}
