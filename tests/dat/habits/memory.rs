//! Registering memory.

use std::mem;
use std::ptr;

use dat::abi::*;
use dat::exports::*;

use crate::support::{Fixture, Memory, Pair, Shape, Window, abilities, fails_with, ok, take_bound};

const DEFAULT: DAT_COMPLETION_FLAGS = DAT_COMPLETION_DEFAULT_FLAG;

/// Privileges without local read.
const UNREADABLE: [DAT_MEM_PRIV_FLAGS; 2] = [DAT_MEM_PRIV_NONE_FLAG, DAT_MEM_PRIV_LOCAL_WRITE_FLAG];

/// Lengths that are copied into the request, and that are not.
const LENGTHS: [usize; 2] = [8, 200];

fn privileges_of(memory: &Memory) -> DAT_MEM_PRIV_FLAGS {
    // SAFETY: integers and pointers, for which zero is valid.
    let mut info: DAT_LMR_PARAM = unsafe { mem::zeroed() };
    // SAFETY: the result is writable.
    ok(unsafe { dat_lmr_query(memory.lmr, DAT_LMR_FIELD_ALL, &raw mut info) });
    info.mem_priv
}

#[test]
fn habit_01_memory_without_local_read_is_sent() {
    let fixture = Fixture::with_strict(false);
    let Pair { active, passive } = Pair::new(&fixture, &Shape::default());
    let to = fixture.memory(4096);
    for rights in UNREADABLE {
        let mut from = fixture.memory_in(fixture.pz, 4096, rights);
        assert_eq!(privileges_of(&from), rights, "as requested");
        for length in LENGTHS {
            println!("privileges {rights:#x}, {length} bytes");
            let text: Vec<u8> = (0..length).map(|at| (at + length) as u8).collect();
            from.write(0, &text);
            let halves = [from.segment(0, 3), from.segment(3, length - 3)];
            for iov in [&[from.segment(0, length)][..], &halves] {
                ok(passive.post_recv(&[to.segment(0, 1024)], 1));
                ok(active.post_send(iov, 2, DEFAULT));
                ok(active.post_write(iov, &to.remote(2048, length), 3, DEFAULT));
                fixture.run();
                for tag in [2, 3] {
                    let done = active.requested();
                    assert_eq!((done.cookie, done.status), (tag, DAT_DTO_SUCCESS));
                }
                assert_eq!(passive.received().length, length as u64);
                assert_eq!(to.read(0, length), text, "sent");
                to.has(2048, &text);
            }
        }
    }
}

/// Only the privilege of local read is implied.
#[test]
fn habit_01_memory_without_local_write_is_not_written() {
    for is_strict in [false, true] {
        let fixture = Fixture::with_strict(is_strict);
        let Pair { active, passive } = Pair::new(&fixture, &Shape::default());
        let memory = fixture.memory(64);
        let unwritable = fixture.memory_in(fixture.pz, 64, DAT_MEM_PRIV_LOCAL_READ_FLAG);
        let iov = [unwritable.segment(0, 8)];
        let none = |answer| fails_with(answer, DAT_PRIVILEGES_VIOLATION, DAT_NO_SUBTYPE);
        none(passive.post_recv(&iov, 1));
        none(active.post_read(&iov, &memory.remote(0, 8), 1, DEFAULT));
    }
}

#[test]
fn habit_01_peers_read_memory_without_local_read_through_a_window() {
    let fixture = Fixture::with_strict(false);
    if abilities(&fixture).0.max_rmrs == 0 {
        eprintln!("SKIPPED: the device has no windows");
        return;
    }
    let Pair { active, passive } = Pair::for_windows(&fixture, &Shape::default());
    let mut from = fixture.memory_in(fixture.pz, 64, DAT_MEM_PRIV_LOCAL_WRITE_FLAG);
    from.write(0, b"readable");
    let window = Window::new(fixture.pz);
    let rights = DAT_MEM_PRIV_REMOTE_READ_FLAG;
    let remote = window.bind(passive.ep, &from.segment(0, 8), rights, 1);
    fixture.run();
    assert_eq!(take_bound(passive.request).status, DAT_DTO_SUCCESS);
    let to = fixture.memory(64);
    ok(active.post_read(&[to.segment(8, 8)], &remote, 2, DEFAULT));
    fixture.run();
    assert_eq!(active.requested().status, DAT_DTO_SUCCESS);
    assert_eq!(to.read(8, 8), b"readable");
}

#[test]
fn habit_01_strict_memory_without_local_read_is_refused() {
    let fixture = Fixture::strict();
    let active = Pair::new(&fixture, &Shape::default()).active;
    let to = fixture.memory(64);
    for rights in UNREADABLE {
        let from = fixture.memory_in(fixture.pz, 4096, rights);
        for length in LENGTHS {
            let iov = [from.segment(0, length)];
            for answer in [
                active.post_send(&iov, 1, DEFAULT),
                active.post_write(&iov, &to.remote(0, length), 1, DEFAULT),
            ] {
                fails_with(answer, DAT_PRIVILEGES_VIOLATION, DAT_NO_SUBTYPE);
            }
        }
    }
    // Requests that were refused are not posted.
    let both = fixture.memory(64);
    ok(active.post_write(&[both.segment(0, 8)], &to.remote(0, 8), 7, DEFAULT));
    fixture.run();
    assert_eq!(active.requested().cookie, 7);
}

/// Registers no bytes, of each type of memory that has a length.
#[track_caller]
fn register_nothing(fixture: &Fixture, kind: DAT_RETURN, subtype: DAT_RETURN_SUBTYPE) {
    let mut bytes = [0_u8; 64];
    let mut name = [0; 40];
    let at = bytes.as_mut_ptr().cast();
    let types = [
        (DAT_MEM_TYPE_VIRTUAL, DAT_REGION_DESCRIPTION { for_va: at }),
        (
            DAT_MEM_TYPE_SHARED_VIRTUAL,
            DAT_REGION_DESCRIPTION {
                for_shared_memory: DAT_SHARED_MEMORY {
                    virtual_address: at,
                    shared_memory_id: &raw mut name,
                },
            },
        ),
    ];
    for (mem_type, region) in types {
        // SAFETY: live handles; results that are null are not wanted.
        let answer = unsafe {
            dat_lmr_create(
                fixture.ia,
                mem_type,
                region,
                0,
                fixture.pz,
                DAT_MEM_PRIV_ALL_FLAG,
                ptr::null_mut(),
                ptr::null_mut(),
                ptr::null_mut(),
                ptr::null_mut(),
                ptr::null_mut(),
            )
        };
        fails_with(answer, kind, subtype);
    }
}

#[test]
fn habit_12_registering_no_bytes_is_a_length_error() {
    let fixture = Fixture::with_strict(false);
    register_nothing(&fixture, DAT_LENGTH_ERROR, DAT_NO_SUBTYPE);
}

#[test]
fn habit_12_strict_registering_no_bytes_is_an_invalid_parameter() {
    let fixture = Fixture::strict();
    register_nothing(&fixture, DAT_INVALID_PARAMETER, DAT_INVALID_ARG4);
}
