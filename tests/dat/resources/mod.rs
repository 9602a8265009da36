//! `DAT_INSUFFICIENT_RESOURCES` and `DAT_CONN_QUAL_UNAVAILABLE`: every call that
//! creates something runs out of memory on the device (the emulated NIC can
//! refuse the n-th command), of descriptors, or of qualifiers. Each call is tried
//! with its first need refused, then its second, and so on until it succeeds. So
//! every step of its cleanup runs.
//!
//! `ep_post_recv`, `posting` and `memory` cover full queues. A lack of threads is
//! not tested: it cannot be forced on a privileged user, and only a privileged
//! user can run all tests.

mod calls;
mod limits;
mod single;

use std::ffi::c_int;
use std::fs;
use std::ptr;
use std::thread;
use std::time::{Duration, Instant};

use dat::abi::*;
use dat::exports::*;
use mlx5emu::emulator::Emulator;
use mlx5emu::faults::FaultSpec;
use mlx5emu::nic::ObjectCounts;

use crate::support::{c_name, device, fails, is_alone, ok, words};
use calls::{Objects, ROWS};
use limits::Limit;

/// A handle value that a failed call must not overwrite.
const UNTOUCHED: usize = 0x77;

/// Undoes a successful call.
type Undo = Box<dyn FnOnce()>;

/// Returns how to undo a call that has succeeded. Checks that a failed call has
/// not written its result.
fn made(
    answer: DAT_RETURN,
    handle: DAT_HANDLE,
    free: unsafe extern "C" fn(DAT_HANDLE) -> DAT_RETURN,
) -> Result<Undo, DAT_RETURN> {
    if answer == DAT_SUCCESS {
        // SAFETY: a live handle, freed once.
        Ok(Box::new(move || ok(unsafe { free(handle) })))
    } else {
        assert_eq!(handle.addr(), UNTOUCHED);
        Err(answer)
    }
}

fn blank() -> DAT_HANDLE {
    ptr::without_provenance_mut(UNTOUCHED)
}

/// Objects on the device, descriptors, threads.
type Held = (Option<ObjectCounts>, usize, usize);

fn held() -> Held {
    let count = |folder: &str| fs::read_dir(folder).expect("proc(5)").count();
    (
        device::emulator().map(|emulator| emulator.nic().object_counts()),
        count("/proc/self/fd"),
        count("/proc/self/task"),
    )
}

/// Returns whether no more is held than before.
fn is_no_more((objects, fds, tasks): &Held, (objects_then, fds_then, tasks_then): &Held) -> bool {
    let counts = |objects: &Option<ObjectCounts>| {
        let all = objects.unwrap_or_default();
        [all.contexts, all.pds, all.keys, all.cqs, all.srqs, all.qps]
    };
    let pairs = counts(objects).into_iter().zip(counts(objects_then));
    pairs
        .chain([(*fds, *fds_then), (*tasks, *tasks_then)])
        .all(|(now, then)| now <= then)
}

/// Returns the number of TCP streams that the process has open, listeners aside. No
/// connection outlives a call that is tried here, so there are none at rest.
fn streams() -> usize {
    let option = |fd: c_int, name: c_int| {
        let (mut value, mut size) = (0 as c_int, size_of::<c_int>() as libc::socklen_t);
        // SAFETY: the value is writable, of the size that is given.
        let answer = unsafe {
            let value = (&raw mut value).cast();
            libc::getsockopt(fd, libc::SOL_SOCKET, name, value, &raw mut size)
        };
        (answer == 0).then_some(value)
    };
    let is_stream = |&fd: &c_int| {
        let domain = option(fd, libc::SO_DOMAIN);
        [Some(libc::AF_INET), Some(libc::AF_INET6)].contains(&domain)
            && option(fd, libc::SO_TYPE) == Some(libc::SOCK_STREAM)
            && option(fd, libc::SO_ACCEPTCONN) == Some(0)
    };
    let fds = fs::read_dir("/proc/self/fd").expect("proc(5)");
    fds.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(is_stream)
        .count()
}

/// Waits until the process holds no more than `before` and no stream is open,
/// and returns what it holds then. Threads end on their own time, so `before`
/// may have been too much already, and less is right too. So do streams whose
/// peer has hung up; one that ended only after the next limit was set would
/// leave its descriptor to the call under test.
#[track_caller]
fn check_released(before: Held, what: &str) -> Held {
    let begin = Instant::now();
    loop {
        let now = held();
        if is_no_more(&now, &before) && streams() == 0 {
            return now;
        }
        assert!(
            begin.elapsed() < Duration::from_secs(60),
            "{what}: {now:?}, and before {before:?}"
        );
        thread::sleep(Duration::from_millis(1));
    }
}

/// Repeats a call, with one more need satisfied each time, until it succeeds.
/// Returns the number of its needs.
#[track_caller]
fn needs(
    call: &str,
    make: impl Fn() -> Result<Undo, DAT_RETURN>,
    but: impl Fn(usize, bool),
) -> usize {
    const MANY: usize = 200;
    // What the first success allocates and keeps is allocated now.
    make().unwrap_or_else(|answer| panic!("{call}: {}", words(answer)))();
    let mut before = check_released(held(), call);
    for satisfied in 0..MANY {
        but(satisfied, true);
        let answer = make();
        but(satisfied, false);
        match answer {
            Ok(undo) => {
                undo();
                check_released(before, call);
                return satisfied;
            }
            Err(answer) => {
                let kind = answer & 0x3fff_0000;
                let text = words(answer);
                assert_eq!(
                    kind, DAT_INSUFFICIENT_RESOURCES,
                    "{call}, {satisfied}: {text}"
                );
                before = check_released(before, &format!("{call} with {satisfied}"));
            }
        }
    }
    panic!("{call} never succeeds");
}

/// Makes the device refuse memory after this many commands, also if libmlx5
/// repeats the command, as it does when it opens the device: several times with DevX,
/// then without.
fn device_lacks(emulator: &Emulator, satisfied: usize, lacks: bool) {
    let words: Vec<_> = (1..=8)
        .map(|next| format!("enomem@{}", satisfied + next))
        .collect();
    let spec: FaultSpec = words.join(",").parse().expect("faults");
    emulator.set_faults(lacks.then_some(&spec));
}

/// Allows the process this many more descriptors.
fn process_lacks(limit: &Limit, satisfied: usize, lacks: bool) {
    match lacks {
        true => limit.leave(satisfied),
        false => limit.lift(),
    }
}

fn open_ia() -> Result<Undo, DAT_RETURN> {
    let name = c_name();
    let (mut evd, mut ia) = (ptr::null_mut(), blank());
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
    if answer != DAT_SUCCESS {
        assert_eq!((ia.addr(), evd.addr()), (UNTOUCHED, 0));
        return Err(answer);
    }
    // SAFETY: a live handle.
    let close = move || ok(unsafe { dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG) });
    Ok(Box::new(close))
}

#[test]
fn resources_missing_on_the_device_are_reported_and_nothing_remains() {
    if !is_alone() {
        return;
    }
    let objects = Objects::new();
    let Some(emulator) = device::emulator() else {
        eprintln!("SKIPPED: a device does not run out of memory on demand; the emulated one does");
        return;
    };
    for row in &ROWS {
        let lacks = |satisfied, lacks| device_lacks(emulator, satisfied, lacks);
        let count = needs(row.call, || (row.make)(&objects), lacks);
        assert_eq!(count > 0, row.needs.0, "{}: {count}", row.call);
    }
}

#[test]
fn resources_missing_in_the_process_are_reported_and_nothing_remains() {
    if !is_alone() {
        return;
    }
    let objects = Objects::new();
    let limit = Limit::now(libc::RLIMIT_NOFILE);
    // Over rdma_cm all connections of a process share a descriptor.
    let by_kernel = objects.fixture.manager() == "rdma_cm";
    let connects = ["dat_psp_create", "dat_psp_create_any", "dat_ep_connect"];
    for row in &ROWS {
        let lacks = |satisfied, lacks| process_lacks(&limit, satisfied, lacks);
        let count = needs(row.call, || (row.make)(&objects), lacks);
        let needs = row.needs.1 && !(by_kernel && connects.contains(&row.call));
        assert_eq!(count > 0, needs, "{}: {count}", row.call);
    }
}

/// Opens an adapter whose device is not open.
#[test]
fn resources_missing_for_an_adapter_are_reported_and_nothing_remains() {
    if !is_alone() {
        return;
    }
    let _lock = device::lock();
    let limit = Limit::now(libc::RLIMIT_NOFILE);
    let lacks = |satisfied, lacks| process_lacks(&limit, satisfied, lacks);
    assert!(needs("dat_ia_open", open_ia, lacks) > 3);
    match device::emulator() {
        Some(emulator) => {
            let lacks = |satisfied, lacks| device_lacks(emulator, satisfied, lacks);
            assert!(needs("dat_ia_open", open_ia, lacks) > 0);
        }
        None => eprintln!(
            "SKIPPED: the device's memory, which is used up on demand by an emulated one only"
        ),
    }
}

/// What libraries load at their first use is loaded later if there were no
/// descriptors for it then.
#[test]
fn resources_for_the_first_adapter_of_a_process_may_come_later() {
    if !is_alone() {
        return;
    }
    let _lock = device::lock();
    let limit = Limit::now(libc::RLIMIT_NOFILE);
    for more in 0..8 {
        limit.leave(more);
        let answer = open_ia();
        limit.lift();
        match answer {
            Ok(close) => close(),
            Err(answer) => fails(answer, DAT_INSUFFICIENT_RESOURCES),
        }
    }
    match open_ia() {
        Ok(close) => close(),
        Err(answer) => panic!("{}", words(answer)),
    }
}
