//! The interposed libc calls.
//!
//! Each call first decides cheaply whether it concerns an emulated device. If it
//! does, [`run_call`] runs the emulator's code: it stores errors in `errno` and
//! catches panics. Calls that succeed leave `errno` unchanged.
#![allow(clippy::missing_safety_doc)] // each is libc's function, with its contract

use std::ffi::{c_char, c_int, c_uint, c_ulong, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use libc::{EINVAL, EIO};

use super::memory_calls::removing;
use super::node::Node;
use super::redirect::{with_path, with_path_at};
use super::{netlink, session};
use crate::fork::doorbells;
use crate::log::warn;
use crate::real;
use crate::residency;
use crate::spec::{Errno, Result};
use crate::uverbs::{DeviceFile, EmulatedFile, Files, Mapped, PAGE_SIZE, files};
use crate::{fork, hidden};

/// A pointer to an interposed function.
pub(super) type Call = *const ();

/// All interposed functions of this file. A reference to this keeps them in the link.
pub(super) const ALL: &[fn() -> Call] = &[
    || open as Call,
    || open64 as Call,
    || __open_2 as Call,
    || __open64_2 as Call,
    || openat as Call,
    || openat64 as Call,
    || __openat_2 as Call,
    || __openat64_2 as Call,
    || read as Call,
    || write as Call,
    || ioctl as Call,
    || close as Call,
    || close_range as Call,
    || closefrom as Call,
    || socket as Call,
    || dup as Call,
    || dup2 as Call,
    || dup3 as Call,
    || fcntl as Call,
    || fcntl64 as Call,
    || mmap as Call,
    || mmap64 as Call,
];

/// Runs the emulator's part of a call. Stores an error in `errno` and returns
/// `failed`.
pub(super) fn run_call<T>(failed: T, work: impl FnOnce() -> Result<T>) -> T {
    let before = errno();
    let outcome = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        warn(
            "panic",
            "internal error in the emulated device (a bug): the call failed with EIO",
        );
        Err(Errno(EIO))
    });
    match outcome {
        Ok(value) => {
            set_errno(before);
            value
        }
        Err(Errno(error)) => {
            set_errno(error);
            failed
        }
    }
}

/// Runs work that cannot fail as part of a call.
pub(super) fn run_infallible(work: impl FnOnce()) {
    run_call((), || {
        work();
        Ok(())
    });
}

pub(super) fn errno() -> c_int {
    // SAFETY: the address of this thread's errno is always valid.
    unsafe { *libc::__errno_location() }
}

pub(super) fn set_errno(value: c_int) {
    // SAFETY: as for `errno`.
    unsafe { *libc::__errno_location() = value };
}

/// Returns whether a descriptor may be an emulated file of this process, or was one of
/// the process that has forked it. Not in a child that must change nothing.
pub(super) fn is_emulated_file(fd: c_int) -> bool {
    Files::may_be_emulated(fd) && !fork::is_outsider()
}

/// Returns the emulated file behind a descriptor. For a file of the parent, in a forked
/// child, that is an error, since the NIC is the parent's.
pub(super) fn emulated(fd: c_int) -> Option<Result<EmulatedFile>> {
    if !Files::may_be_emulated(fd) {
        return None;
    }
    if fork::is_outsider() {
        return Files::is_inherited(fd).then(|| Err(session::refuse_child(EIO)));
    }
    let found = files().get(fd);
    match found {
        None if Files::is_inherited(fd) => Some(Err(session::refuse_child(EIO))),
        found => found.map(Ok),
    }
}

/// Returns the emulated device behind a descriptor, as [`emulated`] does.
fn device(fd: c_int) -> Option<Result<Arc<DeviceFile>>> {
    match emulated(fd)? {
        Ok(EmulatedFile::Device(device)) => Some(Ok(device)),
        Ok(EmulatedFile::Events(_) | EmulatedFile::Cm(_) | EmulatedFile::Netlink(_)) => None,
        Err(error) => Some(Err(error)),
    }
}

unsafe fn open_path(path: *const c_char, flags: c_int) -> Option<c_int> {
    // SAFETY: `path` is the C string the application passes to `open`.
    let node = unsafe { Node::of(path) }?;
    Some(run_call(-1, || session::open(node, flags)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    // SAFETY: the application's arguments, here and below.
    unsafe {
        open_path(path, flags)
            .unwrap_or_else(|| with_path(path, |path| real::open(path, flags, mode)))
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    // SAFETY: as for `open`, which differs only in the flag.
    unsafe { open(path, flags | libc::O_LARGEFILE, mode) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __open_2(path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: as for `open`; fortified programs call this without a mode.
    unsafe { open(path, flags, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __open64_2(path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: as for `open64`.
    unsafe { open64(path, flags, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn openat(dir: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    // SAFETY: as for `open`; device paths are absolute, so `dir` does not matter.
    unsafe {
        open_path(path, flags).unwrap_or_else(|| {
            with_path_at(dir, path, |dir, path| real::openat(dir, path, flags, mode))
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn openat64(
    dir: c_int,
    path: *const c_char,
    flags: c_int,
    mode: c_uint,
) -> c_int {
    // SAFETY: as for `openat`.
    unsafe { openat(dir, path, flags | libc::O_LARGEFILE, mode) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __openat_2(dir: c_int, path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: as for `__open_2`.
    unsafe { openat(dir, path, flags, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __openat64_2(dir: c_int, path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: as for `__open_2`.
    unsafe { openat64(dir, path, flags, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn read(fd: c_int, into: *mut c_void, len: usize) -> isize {
    // SAFETY: the application's arguments.
    let got = unsafe { real::read(fd, into, len) };
    // The event files of a failed device are at their end, where a kernel's
    // files return an error.
    if got == 0 && len > 0 && is_emulated_file(fd) && files().events(fd).is_ok() {
        return run_call(-1, || Err(Errno(EIO)));
    }
    got
}

#[unsafe(no_mangle)]
unsafe extern "C" fn write(fd: c_int, from: *const c_void, len: usize) -> isize {
    let bytes = (from.expose_provenance() as u64, len);
    let written = match emulated(fd) {
        None | Some(Ok(EmulatedFile::Events(_) | EmulatedFile::Netlink(_))) => None,
        Some(Err(error)) => Some(run_call(-1, || Err(error))),
        Some(Ok(EmulatedFile::Device(device))) => {
            Some(run_call(-1, || count(device.write(bytes.0, bytes.1)?)))
        }
        Some(Ok(EmulatedFile::Cm(file))) => Some(run_call(-1, || {
            count(file.write(bytes, &|other| files().cm(other))?)
        })),
    };
    if let Some(written) = written {
        return written;
    }
    // SAFETY: the application's arguments.
    unsafe { netlink::take_buffer(fd, from, len).unwrap_or_else(|| real::write(fd, from, len)) }
}

fn count(bytes: usize) -> Result<isize> {
    isize::try_from(bytes).map_err(|_| Errno(EINVAL))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ioctl(fd: c_int, number: c_ulong, argument: usize) -> c_int {
    if let Some(device) = device(fd) {
        return run_call(-1, || device?.ioctl(number, argument as u64).map(|()| 0));
    }
    // SAFETY: the application's arguments; the optional argument of an ioctl
    // is passed on in any case.
    unsafe { real::ioctl(fd, number, argument) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn close(fd: c_int) -> c_int {
    if hidden::is_hidden(fd) && !fork::is_outsider() {
        set_errno(libc::EBADF);
        return -1;
    }
    if is_emulated_file(fd) {
        // Before the number can be reused for another file.
        run_infallible(|| files().closed(fd));
    }
    // SAFETY: the application's argument.
    unsafe { real::close(fd) }
}

/// Closes all descriptors from `first` to `last` that are not hidden.
#[unsafe(no_mangle)]
unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    const ONLY_ON_EXEC: c_int = 1 << 2;
    // libc before 2.34 does not have this function.
    // SAFETY: close_range(2) takes three numbers.
    let close = |first: c_uint, last: c_uint| unsafe {
        libc::syscall(libc::SYS_close_range, first, last, flags) as c_int
    };
    if flags & ONLY_ON_EXEC != 0 || first > last || fork::is_outsider() {
        return close(first, last);
    }
    run_infallible(|| files().closed_range(first, last));
    let mut next = first;
    for kept in hidden::from(first).map(c_int::cast_unsigned) {
        if kept > last {
            break;
        }
        if kept > next {
            let status = close(next, kept - 1);
            if status != 0 {
                return status;
            }
        }
        next = kept + 1;
    }
    if next > last { 0 } else { close(next, last) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn closefrom(first: c_int) {
    let first = first.max(0);
    // SAFETY: numbers only.
    if unsafe { close_range(first.cast_unsigned(), c_uint::MAX, 0) } == 0 {
        return;
    }
    // Linux before 5.9.
    run_infallible(|| {
        let number = |file: std::fs::DirEntry| file.file_name().to_str()?.parse().ok();
        let files = std::fs::read_dir("/proc/self/fd").into_iter().flatten();
        let open: Vec<c_int> = files.flatten().filter_map(number).collect();
        for fd in open.into_iter().filter(|&fd| fd >= first) {
            // SAFETY: the application asks to close all of them.
            unsafe { close(fd) };
        }
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    const NETLINK_RDMA: c_int = 20;
    if domain == libc::AF_NETLINK && protocol == NETLINK_RDMA && session::config().is_some() {
        return run_call(-1, || netlink::open(kind));
    }
    // SAFETY: the application's arguments.
    unsafe { real::socket(domain, kind, protocol) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dup(fd: c_int) -> c_int {
    // SAFETY: the application's argument.
    let made = unsafe { real::dup(fd) };
    if made >= 0 && is_emulated_file(fd) {
        run_infallible(|| files().duplicated(fd, made));
    }
    made
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dup2(from: c_int, to: c_int) -> c_int {
    // SAFETY: the application's arguments.
    let made = unsafe { real::dup2(from, to) };
    track_duplicate(from, made);
    made
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int {
    // SAFETY: the application's arguments.
    let made = unsafe { real::dup3(from, to, flags) };
    track_duplicate(from, made);
    made
}

fn track_duplicate(from: c_int, made: c_int) {
    if made >= 0 && made != from && (is_emulated_file(from) || is_emulated_file(made)) {
        run_infallible(|| files().duplicated(from, made));
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: the application's arguments, as for `ioctl`.
    let result = unsafe { real::fcntl(fd, command, argument) };
    if matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC)
        && result >= 0
        && is_emulated_file(fd)
    {
        run_infallible(|| files().duplicated(fd, result));
    }
    result
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: as for `fcntl`.
    unsafe { fcntl(fd, command, argument) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mmap(
    at: *mut c_void,
    len: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    let map = |offset| {
        // SAFETY: the application's arguments, with an offset in the file
        // behind the descriptor.
        let map = || unsafe { real::mmap(at, len, protection, flags, fd, offset) };
        match flags & libc::MAP_FIXED {
            0 => map(),
            _ => removing(at, len, residency::Call::MapFixed, map, |mapped| {
                *mapped != libc::MAP_FAILED
            }),
        }
    };
    match device(fd) {
        None => map(offset),
        Some(device) => run_call(libc::MAP_FAILED, || {
            let device = device?;
            let page = match device.check_mapping(offset, len, protection, flags)? {
                Mapped::Doorbells(page) => page,
                Mapped::Clock(place) => {
                    return match map(place.cast_signed()) {
                        libc::MAP_FAILED => Err(Errno(errno())),
                        mapped => Ok(mapped),
                    };
                }
            };
            // The offset encodes a page number and a command; the page is at
            // its number in the memory file.
            let mapped = map(i64::from(page.page) * PAGE_SIZE.cast_signed());
            if mapped == libc::MAP_FAILED {
                return Err(Errno(errno()));
            }
            doorbells::add(mapped.addr(), len);
            device.mapped(page, mapped.addr()).inspect_err(|_| {
                doorbells::remove(mapped.addr(), len);
                // SAFETY: mapped just above and not yet known to the application.
                unsafe { real::munmap(mapped, len) };
            })?;
            Ok(mapped)
        }),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mmap64(
    at: *mut c_void,
    len: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    // SAFETY: offsets have 64 bits in both functions.
    unsafe { mmap(at, len, protection, flags, fd, offset) }
}
