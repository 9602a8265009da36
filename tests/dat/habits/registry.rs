//! The list of adapters, and a dat.conf with the entries of another implementation.

use std::ffi::{CStr, CString, OsString};
use std::path::PathBuf;
use std::ptr;
use std::{env, fs, process};

use dat::abi::*;
use dat::exports::*;

use crate::support::{Fixture, device, fails, fails_with, ok};

/// A dat.conf and `DAT_STRICT`, while this value exists. The fixture keeps other
/// tests from reading the environment.
struct Configuration<'a> {
    before: [(&'static str, Option<OsString>); 2],
    path: PathBuf,
    _fixture: &'a Fixture,
}

impl<'a> Configuration<'a> {
    fn new(fixture: &'a Fixture, text: &str, is_strict: bool) -> Self {
        let path = env::temp_dir().join(format!("dat-habits-{}.conf", process::id()));
        fs::write(&path, text).expect("a file");
        let before = ["DAT_OVERRIDE", "DAT_STRICT"].map(|name| (name, env::var_os(name)));
        // SAFETY: tests read the environment only while they hold a fixture.
        unsafe {
            env::set_var("DAT_OVERRIDE", &path);
            env::set_var("DAT_STRICT", if is_strict { "1" } else { "0" });
        }
        Self {
            before,
            path,
            _fixture: fixture,
        }
    }
}

impl Drop for Configuration<'_> {
    fn drop(&mut self) {
        for (name, value) in &self.before {
            // SAFETY: as above.
            unsafe {
                match value {
                    Some(value) => env::set_var(name, value),
                    None => env::remove_var(name),
                }
            }
        }
        fs::remove_file(&self.path).expect("ours");
    }
}

/// Written into the places that a call leaves alone.
const UNTOUCHED: &str = "untouched";

fn text(name: &[libc::c_char]) -> String {
    // SAFETY: the names of this file end within the array.
    let name = unsafe { CStr::from_ptr(name.as_ptr()) };
    name.to_str().expect("ASCII").to_owned()
}

/// Calls `dat_registry_list_providers` with this much room. Returns the code, the
/// count, and the names in an array that is two places longer.
fn list(room: usize) -> (DAT_RETURN, DAT_COUNT, Vec<String>) {
    let blank = |_: usize| -> DAT_PROVIDER_INFO {
        // SAFETY: integers, for which zero is valid.
        unsafe { std::mem::zeroed() }
    };
    let mut infos: Vec<_> = (0..room + 2).map(blank).collect();
    for info in &mut infos {
        for (to, from) in info.ia_name.iter_mut().zip(UNTOUCHED.bytes()) {
            *to = from as libc::c_char;
        }
    }
    let mut places: Vec<_> = infos.iter_mut().map(ptr::from_mut).collect();
    let mut count = -77;
    // SAFETY: the array is longer than it is said to be.
    let answer = unsafe {
        dat_registry_list_providers(room as DAT_COUNT, &raw mut count, places.as_mut_ptr())
    };
    let names = infos.iter().map(|info| text(&info.ia_name)).collect();
    (answer, count, names)
}

fn open_version(name: &str, major: DAT_UINT32, minor: DAT_UINT32) -> DAT_RETURN {
    let name = CString::new(name).expect("no NUL");
    let (mut ia, mut evd) = (ptr::null_mut(), ptr::null_mut());
    let (qlen, name) = (8, name.as_ptr().cast_mut());
    // SAFETY: every pointer leads to what the call expects.
    let answer = unsafe {
        dat_ia_openv(
            name,
            qlen,
            &raw mut evd,
            &raw mut ia,
            major,
            minor,
            DAT_FALSE,
        )
    };
    if answer == DAT_SUCCESS {
        // SAFETY: a live handle.
        ok(unsafe { dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG) });
    }
    answer
}

fn open(name: &str) -> DAT_RETURN {
    open_version(name, 1, 2)
}

/// An entry of another implementation.
fn theirs(name: &str, version: &str, library: &str, instance: &str) -> String {
    let provider = version.trim_start_matches('u');
    format!(
        "{name} {version} nonthreadsafe default {library} dapl.{provider} \"{instance}\" \"\"\n"
    )
}

/// A file like the one that distributions install with OFED's DAPL: 63 entries, for
/// devices that hosts may have, of libraries that are not installed.
fn shipped() -> String {
    let mut file = "# One line for each adapter that a host may have.\n\n".to_owned();
    for interface in [
        "ib0", "ib1", "ib2", "ib3", "bond0", "eth2", "eth3", "eth4", "eth5",
    ] {
        let name = format!("ofa-v2-{interface}");
        file += &theirs(&name, "u2.0", "libdaplofa.so.2", &format!("{interface} 0"));
    }
    let devices = [
        "mthca0", "mlx4_0", "mlx5_0", "ipath0", "ehca0", "qib0", "scif0",
    ];
    for (suffix, library) in [
        ("", "libdaploscm.so.2"),
        ("s", "libdaploscm.so.2"),
        ("u", "libdaploucm.so.2"),
    ] {
        for device in devices {
            for port in [1, 2] {
                let name = format!("ofa-v2-{device}-{port}{suffix}");
                file += &theirs(&name, "u2.0", library, &format!("{device} {port}"));
            }
        }
    }
    for interface in ["ib0", "ib1", "bond0"] {
        let name = format!("OpenIB-cma-{interface}");
        file += &theirs(&name, "u1.2", "libdaplcma.so.1", &format!("{interface} 0"));
    }
    for device in ["mthca0", "mlx4_0", "mlx5_0"] {
        for port in [1, 2, 3] {
            let name = format!("OpenIB-{device}-{port}");
            file += &theirs(
                &name,
                "u1.2",
                "libdaplscm.so.1",
                &format!("{device} {port}"),
            );
        }
    }
    file
}

#[test]
fn list_providers_fills_what_fits_and_succeeds() {
    let fixture = Fixture::new();
    let _set = Configuration::new(&fixture, &shipped(), false);
    let (answer, total, names) = list(0);
    fails_with(answer, DAT_INVALID_PARAMETER, DAT_INVALID_ARG1);
    assert!(total >= 64, "63 entries and a device: {total}");
    assert_eq!(names, [UNTOUCHED; 2]);
    for room in [1, 8, total as usize - 1] {
        let (answer, count, names) = list(room);
        ok(answer);
        // As many as the program may read.
        assert_eq!(count, room as DAT_COUNT);
        assert!(!names[..room].contains(&UNTOUCHED.to_owned()), "{names:?}");
        assert_eq!(names[room..], [UNTOUCHED; 2]);
    }
    let (answer, count, _) = list(total as usize);
    ok(answer);
    assert_eq!(count, total);
}

#[test]
fn strict_list_providers_refuses_an_array_that_is_too_small() {
    let fixture = Fixture::new();
    let _set = Configuration::new(&fixture, &shipped(), true);
    let (_, total, _) = list(0);
    for room in [0, 1, 8, total as usize - 1] {
        let (answer, count, names) = list(room);
        fails_with(answer, DAT_INVALID_PARAMETER, DAT_INVALID_ARG1);
        assert_eq!(count, total);
        // In the order of the file.
        if room > 0 {
            assert_eq!(names[0], "ofa-v2-ib0");
        }
        assert_eq!(names[room..], [UNTOUCHED; 2]);
    }
    ok(list(total as usize).0);
}

/// A program that has room for eight names finds an adapter that it can open.
#[test]
fn list_providers_leaves_out_names_of_other_libraries_first() {
    let fixture = Fixture::new();
    let name = device::name();
    let ours = format!("mine u1.2 nonthreadsafe default libdat.so.1 udapl.1.2 \"{name} 1\" \"\"\n");
    let _set = Configuration::new(&fixture, &(shipped() + &ours), false);
    // Entries that the library serves in the place of others come next: their devices may not exist.
    let (answer, count, names) = list(8);
    ok(answer);
    assert_eq!((count, names[0].as_str()), (8, "mine"));
    assert!(names[1].starts_with(name), "{names:?}");
    assert!(names[2].starts_with("OpenIB-"), "{names:?}");
    // With enough room, the order is that of the file.
    let (_, total, _) = list(0);
    let (answer, _, names) = list(total as usize);
    ok(answer);
    assert_eq!(
        (names[0].as_str(), names[63].as_str()),
        ("ofa-v2-ib0", "mine")
    );
}

#[test]
fn a_dat_conf_of_another_implementation_hides_no_adapter() {
    let fixture = Fixture::new();
    let name = device::name();
    let ours = format!("mine u1.2 nonthreadsafe default libdat.so.1 udapl.1.2 \"{name} 1\" \"\"\n");
    assert_eq!(
        shipped().lines().filter(|line| line.contains(" u")).count(),
        63
    );
    for file in [shipped() + &ours, ours + &shipped()] {
        for is_strict in [false, true] {
            let _set = Configuration::new(&fixture, &file, is_strict);
            ok(open(name));
            ok(open("mine"));
        }
    }
    // An entry of another version that has the device's own name.
    let clash = theirs(name, "u2.0", "libdaplofa.so.2", "ib0 0");
    let _set = Configuration::new(&fixture, &(shipped() + &clash), false);
    ok(open(name));
}

/// The library that serves the name is not installed. The cause and the remedy are
/// printed with `DAT_DBG_TYPE=1`.
#[test]
fn a_name_of_a_library_that_is_not_installed_is_not_found() {
    let fixture = Fixture::new();
    let name = device::name();
    let place = format!("{name} 1");
    let entry = theirs("OpenIB-ours", "u1.2", "libtheirs.so.1", &place);
    let set = Configuration::new(&fixture, &(shipped() + &entry), false);
    for missing in ["OpenIB-ours", "OpenIB-mthca0-1", "ofa-v2-ib0"] {
        fails(open(missing), DAT_PROVIDER_NOT_FOUND);
    }
    fails(open_version("ofa-v2-ib0", 2, 0), DAT_PROVIDER_NOT_FOUND);
    // A further line with the name and this library is tried next.
    let also =
        format!("OpenIB-ours u1.2 nonthreadsafe default libdat.so.1 udapl.1.2 \"{name} 1\" \"\"\n");
    drop(set);
    let _set = Configuration::new(&fixture, &(entry + &also), false);
    ok(open("OpenIB-ours"));
}

/// OFED 1.x wrote such entries; its libraries are not installed.
#[test]
fn an_entry_of_a_provider_of_ofed_opens_its_device() {
    let fixture = Fixture::new();
    let place = format!("{} 1", device::name());
    let file = theirs("cma", "u1.2", "libdaplcma.so.1", &place)
        + &theirs("scm", "u1.2", "/usr/lib64/libdaplscm.so.1", &place);
    // As editors of other systems write it.
    for file in [file.clone(), format!("\u{feff}{file}")] {
        let _set = Configuration::new(&fixture, &file, false);
        ok(open("cma"));
        ok(open("scm"));
    }
}
