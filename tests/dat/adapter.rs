//! Adapters and the registry: which test covers each row of the tables.
//!
//! | row | where |
//! | --- | --- |
//! | opening: each failure | here, `opening_fails_with_the_code_of_each_cause` |
//! | opening: no descriptors, no memory on the device | `resources` |
//! | opening: libraries of other providers, a provider inside the program, order of entries | `libdat/tests/registry` |
//! | opening: the asynchronous EVD is new, given or elsewhere | `dat-api/tests/adapters/events`; what a query says then: `libdat/tests/face/arguments` |
//! | querying: masks and pointers | `libdat/tests/face/queries` |
//! | attributes are true | `dat-api/tests/adapters/attributes`; limits: `ep_create_with_srq/attributes`; `posting` |
//! | … only compared with the device's attributes: `max_eps`, `max_evds`, `max_pzs`, `max_lmrs`, `max_rmrs`, `max_srqs` | `counts_are_those_of_the_device` there |
//! | attributes in C equal those in Rust | `libdat/tests/face/queries`: `every_attribute_of_c_…` |
//! | closing: flags, refusal for each kind of object | here, `closing_…` |
//! | closing: everything ends, waiters return | `dat-api/tests/adapters/closing`, `cno/ending` |
//! | listing names | `libdat/tests/face/registry` |
//! | adding and removing providers | the same, and `libdat/tests/registry` |
//! | names of return codes | `libdat/tests/face/status` |
//! | calls that must not block nor allocate, `iov_ownership_on_return` | `posting` |
//! | contexts and types of handles | `libdat/tests/face/handles`, `…/objects` |
//! | invalid handles in every call, and their subtypes | `libdat/tests/face/handles` |
//! | dat.conf: syntax | `dat-api/src/registry/conf/tests`; invalid lines: `bad_input/configuration` |
//! | dat.conf: which entry counts | `dat-api/src/registry/tests`, `libdat/tests/registry` |
//! | thread safety: an adapter reports how it was opened | here, `thread_safety_…` |
//! | thread safety: several threads on one endpoint | `dat-api/tests/device/posting` |
//! | calls that are safe for threads | `evd_wait/threads`, `evd_wait/owner`, `cno/threads`; all of them: `libdat/tests/random_calls` |

use std::ffi::CString;
use std::mem;
use std::ptr;

use dat::abi::*;
use dat::exports::*;

use crate::support::{
    End, Fixture, Memory, ReservedPoint, Shape, abilities, c_name, device, fails_with, ok,
    on_free_qualifier, srq,
};

/// Calls `dat_ia_openv`. All arguments are valid unless a test changes them.
struct Opening {
    name: *const libc::c_char,
    qlen: DAT_COUNT,
    async_evd: DAT_EVD_HANDLE,
    version: (DAT_UINT32, DAT_UINT32),
    has_evd_place: bool,
    has_ia_place: bool,
    threadsafe: DAT_BOOLEAN,
}

impl Opening {
    fn new(name: &CString) -> Self {
        Self {
            name: name.as_ptr(),
            qlen: 8,
            async_evd: ptr::null_mut(),
            version: (1, 2),
            has_evd_place: true,
            has_ia_place: true,
            threadsafe: DAT_FALSE,
        }
    }

    fn open(mut self) -> Result<DAT_IA_HANDLE, DAT_RETURN> {
        let mut ia = ptr::null_mut();
        let evd_place = match self.has_evd_place {
            true => &raw mut self.async_evd,
            false => ptr::null_mut(),
        };
        let ia_place = match self.has_ia_place {
            true => &raw mut ia,
            false => ptr::null_mut(),
        };
        // SAFETY: each pointer is null or leads to what the call expects.
        let answer = unsafe {
            dat_ia_openv(
                self.name.cast_mut(),
                self.qlen,
                evd_place,
                ia_place,
                self.version.0,
                self.version.1,
                self.threadsafe,
            )
        };
        match answer {
            DAT_SUCCESS => Ok(ia),
            error => Err(error),
        }
    }
}

fn close(ia: DAT_IA_HANDLE, flags: DAT_CLOSE_FLAGS) -> DAT_RETURN {
    // SAFETY: the call validates its handles.
    unsafe { dat_ia_close(ia, flags) }
}

#[test]
fn opening_fails_with_the_code_of_each_cause() {
    let fixture = Fixture::new();
    let name = c_name();
    let (longest, too_long) = (
        CString::new("x".repeat(255)).unwrap(),
        CString::new("x".repeat(256)).unwrap(),
    );
    let other = CString::new("no_agent").unwrap();
    let no_async = fixture.evd(8, DAT_EVD_DEFAULT_FLAG & !DAT_EVD_ASYNC_FLAG);
    let of = || Opening::new(&name);
    let not_found = (DAT_PROVIDER_NOT_FOUND, DAT_NAME_NOT_REGISTERED);
    let rows = [
        (
            "the name is null",
            Opening {
                name: ptr::null(),
                ..of()
            },
            (DAT_INVALID_PARAMETER, DAT_INVALID_ARG1),
        ),
        (
            "the name has 256 bytes",
            Opening::new(&too_long),
            (DAT_INVALID_PARAMETER, DAT_INVALID_ARG1),
        ),
        ("the name has 255 bytes", Opening::new(&longest), not_found),
        ("no adapter has the name", Opening::new(&other), not_found),
        (
            "another major version",
            Opening {
                version: (2, 0),
                ..of()
            },
            not_found,
        ),
        (
            "another minor version",
            Opening {
                version: (1, 1),
                ..of()
            },
            not_found,
        ),
        (
            "null for the handle",
            Opening {
                has_ia_place: false,
                ..of()
            },
            (DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA),
        ),
        (
            "null for the asynchronous EVD",
            Opening {
                has_evd_place: false,
                ..of()
            },
            (DAT_INVALID_PARAMETER, DAT_INVALID_ARG3),
        ),
        (
            "an asynchronous EVD of length 0",
            Opening { qlen: 0, ..of() },
            (DAT_INVALID_PARAMETER, DAT_INVALID_ARG2),
        ),
        (
            "an asynchronous EVD of negative length",
            Opening { qlen: -1, ..of() },
            (DAT_INVALID_PARAMETER, DAT_INVALID_ARG2),
        ),
        (
            "an invalid asynchronous EVD",
            Opening {
                async_evd: fixture.pz,
                ..of()
            },
            (DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EVD_ASYNC),
        ),
        (
            "an EVD without the asynchronous flag",
            Opening {
                async_evd: no_async,
                ..of()
            },
            (DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EVD_ASYNC),
        ),
    ];
    for (row, opening, (kind, subtype)) in rows {
        println!("{row}");
        let answer = opening.open().expect_err(row);
        fails_with(answer, kind, subtype);
    }
    // The length is ignored if an EVD is given.
    let given = Opening {
        async_evd: fixture.async_evd,
        qlen: -5,
        ..of()
    };
    let second = given.open().expect("the adapter opens");
    ok(close(second, DAT_CLOSE_GRACEFUL_FLAG));
}

/// Calls that free an object of an adapter and what it needs, in order.
type Made = Vec<Box<dyn FnOnce() -> DAT_RETURN>>;
type Make = fn(&Fixture) -> Made;

/// One object of each kind, alone in its adapter except for what it needs.
fn each_kind() -> Vec<(&'static str, Make)> {
    fn evd(fixture: &Fixture, flags: DAT_EVD_FLAGS) -> (DAT_EVD_HANDLE, Made) {
        let evd = fixture.evd(8, flags);
        // SAFETY: a live handle.
        (evd, vec![Box::new(move || unsafe { dat_evd_free(evd) })])
    }
    vec![
        ("an EVD", |fixture| evd(fixture, DAT_EVD_DEFAULT_FLAG).1),
        ("an LMR", |fixture| {
            let mut memory = Memory::new(fixture.ia, fixture.pz, 4096, DAT_MEM_PRIV_ALL_FLAG);
            vec![Box::new(move || memory.free())]
        }),
        ("an RMR", |fixture| {
            if abilities(fixture).0.max_rmrs == 0 && !fixture.is_stepped() {
                eprintln!("SKIPPED: an RMR, on a device without windows");
                return Vec::new();
            }
            let mut rmr = ptr::null_mut();
            // SAFETY: a live zone; the result is writable.
            ok(unsafe { dat_rmr_create(fixture.pz, &raw mut rmr) });
            // SAFETY: a live handle.
            vec![Box::new(move || unsafe { dat_rmr_free(rmr) })]
        }),
        ("a CNO", |fixture| {
            let mut cno = ptr::null_mut();
            let no_agent = DAT_OS_WAIT_PROXY_AGENT {
                instance_data: ptr::null_mut(),
                proxy_agent_func: None,
            };
            // SAFETY: a live adapter; the result is writable.
            ok(unsafe { dat_cno_create(fixture.ia, no_agent, &raw mut cno) });
            // SAFETY: a live handle.
            vec![Box::new(move || unsafe { dat_cno_free(cno) })]
        }),
        ("an SRQ", |fixture| {
            let srq = srq(fixture, 8);
            // SAFETY: a live handle.
            vec![Box::new(move || unsafe { dat_srq_free(srq) })]
        }),
        ("an endpoint", |fixture| {
            let end = End::new(fixture, &Shape::default());
            let evds = [end.recv, end.request, end.connect];
            // SAFETY: live handles.
            let mut made: Made = vec![Box::new(move || unsafe { dat_ep_free(end.ep) })];
            for evd in evds {
                // SAFETY: the same.
                made.push(Box::new(move || unsafe { dat_evd_free(evd) }));
            }
            made
        }),
        ("a reserved service point", |fixture| {
            let end = End::new(fixture, &Shape::default());
            let point = ReservedPoint::new(fixture, end.ep);
            let mut made: Made = vec![Box::new(move || point.free())];
            // SAFETY: live handles.
            made.push(Box::new(move || unsafe { dat_ep_free(end.ep) }));
            for evd in [end.recv, end.request, end.connect, point.requests] {
                // SAFETY: the same.
                made.push(Box::new(move || unsafe { dat_evd_free(evd) }));
            }
            made
        }),
        ("a public service point", |fixture| {
            let (evd, mut made) = evd(fixture, DAT_EVD_CR_FLAG);
            let mut psp = ptr::null_mut();
            let (ia, flags) = (fixture.ia, DAT_PSP_CONSUMER_FLAG);
            // SAFETY: live handles; the result is writable.
            on_free_qualifier(|qualifier| unsafe {
                dat_psp_create(ia, qualifier, evd, flags, &raw mut psp)
            });
            // SAFETY: a live handle.
            made.insert(0, Box::new(move || unsafe { dat_psp_free(psp) }));
            made
        }),
    ]
}

#[test]
fn closing_gracefully_fails_while_an_object_of_any_kind_exists() {
    for (row, make) in each_kind() {
        println!("{row}");
        let mut fixture = Fixture::new();
        let made = make(&fixture);
        for free in made {
            fails_with(
                fixture.close(DAT_CLOSE_GRACEFUL_FLAG),
                DAT_INVALID_STATE,
                DAT_INVALID_STATE_IA_IN_USE,
            );
            ok(free());
        }
        // The fixture's protection zone alone is enough.
        fails_with(
            fixture.close(DAT_CLOSE_GRACEFUL_FLAG),
            DAT_INVALID_STATE,
            DAT_INVALID_STATE_IA_IN_USE,
        );
        // SAFETY: a live handle.
        ok(unsafe { dat_pz_free(fixture.pz) });
        let ia = fixture.ia;
        ok(fixture.close(DAT_CLOSE_GRACEFUL_FLAG));
        fails_with(
            close(ia, DAT_CLOSE_GRACEFUL_FLAG),
            DAT_INVALID_HANDLE,
            DAT_INVALID_HANDLE_IA,
        );
    }
}

#[test]
fn closing_accepts_two_flags_only() {
    let fixture = Fixture::new();
    for flags in [2, 3, DAT_CLOSE_FLAGS::MAX] {
        fails_with(
            close(fixture.ia, flags),
            DAT_INVALID_PARAMETER,
            DAT_INVALID_ARG2,
        );
    }
}

#[test]
fn closing_abruptly_ends_objects_of_every_kind() {
    let mut fixture = Fixture::new();
    let all: Vec<Made> = each_kind()
        .into_iter()
        .map(|(_, make)| make(&fixture))
        .collect();
    let pz = fixture.pz;
    ok(fixture.close(DAT_CLOSE_ABRUPT_FLAG));
    for free in all.into_iter().flatten() {
        let answer = free();
        assert_eq!(answer & 0x3fff_0000, DAT_INVALID_HANDLE, "{answer:#x}");
    }
    // SAFETY: the call validates its handles.
    let answer = unsafe { dat_pz_free(pz) };
    fails_with(answer, DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_PZ);
}

#[test]
fn thread_safety_is_reported_as_the_adapter_was_opened() {
    let _lock = device::lock();
    let name = c_name();
    for threadsafe in [DAT_FALSE, DAT_TRUE] {
        let ia = Opening {
            threadsafe,
            ..Opening::new(&name)
        };
        let ia = ia.open().expect("the adapter opens");
        // SAFETY: integers and pointers, for which zero is valid.
        let mut provider: DAT_PROVIDER_ATTR = unsafe { mem::zeroed() };
        // SAFETY: requested results are writable, others are not requested.
        ok(unsafe {
            dat_ia_query(
                ia,
                ptr::null_mut(),
                0,
                ptr::null_mut(),
                DAT_PROVIDER_FIELD_ALL,
                &raw mut provider,
            )
        });
        assert_eq!(provider.is_thread_safe, threadsafe);
        assert_eq!(
            (provider.dapl_version_major, provider.dapl_version_minor),
            (1, 2)
        );
        ok(close(ia, DAT_CLOSE_GRACEFUL_FLAG));
    }
}
