//! Invalid contents of dat.conf, selected by `DAT_OVERRIDE`.

use std::ffi::{CString, OsString};
use std::path::{Path, PathBuf};
use std::ptr;
use std::{env, fs, process};

use dat::abi::*;
use dat::exports::*;

use crate::support::{Fixture, c_name, device, fails, fails_with, ok};

/// A file and the variable that names it, while this value exists. The fixture
/// keeps other tests from reading the environment.
struct Override<'a> {
    before: Option<OsString>,
    _fixture: &'a Fixture,
}

impl<'a> Override<'a> {
    fn new(fixture: &'a Fixture, path: &Path) -> Self {
        let before = env::var_os("DAT_OVERRIDE");
        // SAFETY: tests read the environment only while they hold a fixture.
        unsafe { env::set_var("DAT_OVERRIDE", path) };
        Self {
            before,
            _fixture: fixture,
        }
    }
}

impl Drop for Override<'_> {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe {
            match &self.before {
                Some(before) => env::set_var("DAT_OVERRIDE", before),
                None => env::remove_var("DAT_OVERRIDE"),
            }
        }
    }
}

fn open(name: &str) -> DAT_RETURN {
    let name = CString::new(name).expect("no NUL");
    let (mut ia, mut evd) = (ptr::without_provenance_mut(0x77), ptr::null_mut());
    // SAFETY: every pointer leads to what the call expects.
    let answer = unsafe {
        dat_ia_openv(
            name.as_ptr().cast_mut(),
            8,
            &raw mut evd,
            &raw mut ia,
            1,
            2,
            DAT_FALSE,
        )
    };
    if answer == DAT_SUCCESS {
        // SAFETY: a live handle.
        ok(unsafe { dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG) });
    } else {
        assert_eq!(ia.addr(), 0x77, "a handle was written");
    }
    answer
}

/// Lists the providers, with room for many.
fn list() -> DAT_RETURN {
    // SAFETY: integers, for which zero is valid.
    let mut infos: [DAT_PROVIDER_INFO; 64] = unsafe { std::mem::zeroed() };
    let mut places: Vec<_> = infos.iter_mut().map(ptr::from_mut).collect();
    let mut count = -77;
    // SAFETY: the array has as many elements as given.
    let answer = unsafe { dat_registry_list_providers(64, &raw mut count, places.as_mut_ptr()) };
    if answer == DAT_SUCCESS {
        assert!((0..10_000).contains(&count), "{count}");
    }
    answer
}

fn scratch() -> PathBuf {
    env::temp_dir().join(format!("dat-bad-input-{}.conf", process::id()))
}

#[test]
fn invalid_lines_in_dat_conf_neither_hide_nor_add_adapters() {
    let fixture = Fixture::new();
    let path = scratch();
    let garbage: [&[u8]; 12] = [
        b"",
        b"\n\n\n",
        b"nope",
        b"nope u1.2 threadsafe",
        b"\"nope u1.2 nonthreadsafe default x dapl.1.2 \"\" \"\"\n",
        b"nope u1.2 nonthreadsafe default \"\" dapl.1.2 \"\" \"\"\n",
        b"nope u99999999999999999999.2 nonthreadsafe default x dapl.1.2 \"\" \"\"\n",
        b"nope u1.2 nonthreadsafe default x.so dapl.1.2 \"\" \"\" more fields\n",
        b"\x00\x01\x02\xff\xfe\x00nope\x00",
        b"nope\0 u1.2 nonthreadsafe default x.so dapl.1.2 \"\" \"\"\n",
        b"\xff\xff u1.2 nonthreadsafe default x.so dapl.1.2 \"\" \"\"\n",
        b"# nope u1.2 nonthreadsafe default x.so dapl.1.2 \"\" \"\"",
    ];
    for bytes in garbage {
        fs::write(&path, bytes).expect("a file");
        let _set = Override::new(&fixture, &path);
        fails(open("nope"), DAT_PROVIDER_NOT_FOUND);
        ok(open(device::name()));
        ok(list());
    }
    // One unterminated line, longer than any buffer.
    fs::write(&path, vec![b'a'; 3 << 20]).expect("a file");
    {
        let _set = Override::new(&fixture, &path);
        fails(open("nope"), DAT_PROVIDER_NOT_FOUND);
        ok(open(device::name()));
    }
    fs::remove_file(&path).expect("ours");
}

/// A valid line after invalid ones is used.
#[test]
fn a_valid_line_after_invalid_ones_is_found() {
    let fixture = Fixture::new();
    let path = scratch().with_extension("good.conf");
    let text = format!(
        "nonsense\n\"unfinished\n\
         mine u1.2 nonthreadsafe default libdat.so.1 dapl.1.2 \"{} 1\" \"\"\n",
        device::name()
    );
    fs::write(&path, text).expect("a file");
    {
        let _set = Override::new(&fixture, &path);
        // Its library may be another one; the name is known, and the lines before
        // it do not hide it from the list.
        ok(list());
        fails(open("min"), DAT_PROVIDER_NOT_FOUND);
        fails(open("mine2"), DAT_PROVIDER_NOT_FOUND);
        ok(open("mine"));
    }
    fs::remove_file(&path).expect("ours");
}

#[test]
fn a_dat_conf_that_is_not_a_file_is_ignored() {
    let fixture = Fixture::new();
    for path in [
        Path::new("/nonexistent/dat.conf"),
        Path::new("/"),
        Path::new(""),
        Path::new("/proc/self/mem"),
        Path::new("/dev/null"),
    ] {
        let _set = Override::new(&fixture, path);
        fails(open("nope"), DAT_PROVIDER_NOT_FOUND);
        ok(open(device::name()));
        ok(list());
    }
}

#[test]
fn invalid_names_and_versions_are_not_found() {
    let _fixture = Fixture::new();
    for name in ["", " ", "/etc/passwd"] {
        fails(open(name), DAT_PROVIDER_NOT_FOUND);
    }
    let name = device::name();
    for nearly in [
        format!("{name} "),
        name[..name.len() - 1].to_owned(),
        name.to_uppercase(),
        format!("{name}-99"),
        format!("{name}-"),
        format!("{name}-0"),
    ] {
        fails(open(&nearly), DAT_PROVIDER_NOT_FOUND);
    }
    // The longest name has one byte less than DAT_NAME_MAX_LENGTH.
    for length in [256, 100_000] {
        fails_with(
            open(&"x".repeat(length)),
            DAT_INVALID_PARAMETER,
            DAT_INVALID_ARG1,
        );
    }
    fails(open(&"x".repeat(255)), DAT_PROVIDER_NOT_FOUND);
    let (mut ia, mut evd) = (ptr::null_mut(), ptr::null_mut());
    for (major, minor) in [(0, 0), (1, 99), (2, 0), (u32::MAX, u32::MAX)] {
        // SAFETY: every pointer leads to what the call expects.
        let answer = unsafe {
            dat_ia_openv(
                c_name().as_ptr().cast_mut(),
                8,
                &raw mut evd,
                &raw mut ia,
                major,
                minor,
                DAT_FALSE,
            )
        };
        fails(answer, DAT_PROVIDER_NOT_FOUND);
    }
    let name = c_name();
    // SAFETY: null is under test.
    unsafe {
        let answer = dat_ia_openv(
            ptr::null_mut(),
            8,
            &raw mut evd,
            &raw mut ia,
            1,
            2,
            DAT_FALSE,
        );
        fails_with(answer, DAT_INVALID_PARAMETER, DAT_INVALID_ARG1);
        let name = name.as_ptr().cast_mut();
        let answer = dat_ia_openv(name, 8, &raw mut evd, ptr::null_mut(), 1, 2, DAT_FALSE);
        fails_with(answer, DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA);
        let answer = dat_ia_openv(name, 8, ptr::null_mut(), &raw mut ia, 1, 2, DAT_FALSE);
        fails_with(answer, DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
    }
}
