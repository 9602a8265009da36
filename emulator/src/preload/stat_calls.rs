//! The interposed calls that return the attributes of a file. A device file is a
//! character device, by its path and by a descriptor.
#![allow(clippy::missing_safety_doc)] // each is libc's function, with its contract

use std::ffi::{CStr, c_char, c_int, c_uint};

use super::calls::{Call, is_emulated_file, run_call, run_infallible};
use super::node::Node;
use super::redirect::{with_path, with_path_at};
use crate::real;

/// All interposed functions of this file.
pub(super) const ALL: &[fn() -> Call] = &[
    || stat as Call,
    || stat64 as Call,
    || __xstat as Call,
    || __xstat64 as Call,
    || lstat as Call,
    || lstat64 as Call,
    || __lxstat as Call,
    || __lxstat64 as Call,
    || fstatat as Call,
    || fstatat64 as Call,
    || __fxstatat as Call,
    || __fxstatat64 as Call,
    || fstat as Call,
    || fstat64 as Call,
    || __fxstat as Call,
    || __fxstat64 as Call,
    || statx as Call,
];

unsafe fn stat_device(path: *const c_char, into: *mut libc::stat) -> Option<c_int> {
    // SAFETY: `path` is the C string the application passes.
    let node = unsafe { Node::of(path) }?;
    Some(run_call(-1, || {
        node.check()?;
        // SAFETY: an all-zero `stat` is a valid one.
        let mut stat: libc::stat = unsafe { std::mem::zeroed() };
        stat.st_nlink = 1;
        stat.st_blksize = 4096;
        fill_device_stat(&mut stat, node);
        // SAFETY: the application provides room for a `stat`.
        unsafe { into.write(stat) };
        Ok(0)
    }))
}

fn fill_device_stat(stat: &mut libc::stat, node: Node) {
    let (major, minor) = node.number();
    stat.st_mode = Node::MODE;
    stat.st_rdev = libc::makedev(major, minor);
    stat.st_size = 0;
}

fn fill_device_statx(stat: &mut libc::statx, node: Node) {
    // The type and the permissions fit in 16 bits.
    stat.stx_mode = Node::MODE as u16;
    (stat.stx_rdev_major, stat.stx_rdev_minor) = node.number();
    stat.stx_size = 0;
}

/// Passes the device file behind a descriptor, if there is one, to `fill`.
fn fill_descriptor(fd: c_int, fill: impl FnOnce(Node)) {
    if is_emulated_file(fd) {
        run_infallible(|| {
            if let Some(node) = Node::behind(fd) {
                fill(node);
            }
        });
    }
}

unsafe fn stat_descriptor(fd: c_int, into: *mut libc::stat) -> c_int {
    // SAFETY: the application's arguments.
    let result = unsafe { real::fstat(fd, into) };
    if result == 0 {
        // SAFETY: the call above has initialised it.
        let stat = unsafe { &mut *into };
        fill_descriptor(fd, |node| fill_device_stat(stat, node));
    }
    result
}

/// Returns whether a call names a descriptor instead of a path.
unsafe fn names_descriptor(path: *const c_char, flags: c_int) -> bool {
    flags & libc::AT_EMPTY_PATH != 0
        // SAFETY: the application's argument, a C string or (since Linux 6.11) null.
        && (path.is_null() || unsafe { CStr::from_ptr(path) }.is_empty())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn stat(path: *const c_char, into: *mut libc::stat) -> c_int {
    // SAFETY: the application's arguments, here and below.
    unsafe {
        stat_device(path, into).unwrap_or_else(|| with_path(path, |path| real::stat(path, into)))
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn stat64(path: *const c_char, into: *mut libc::stat) -> c_int {
    // SAFETY: `stat64` and `stat` are the same structure on 64-bit Linux.
    unsafe { stat(path, into) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __xstat(_version: c_int, path: *const c_char, into: *mut libc::stat) -> c_int {
    // SAFETY: programs built for glibc before 2.33 call this for `stat`; the
    // structure has only one version on 64-bit Linux.
    unsafe { stat(path, into) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __xstat64(
    version: c_int,
    path: *const c_char,
    into: *mut libc::stat,
) -> c_int {
    // SAFETY: as for `__xstat`.
    unsafe { __xstat(version, path, into) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lstat(path: *const c_char, into: *mut libc::stat) -> c_int {
    // SAFETY: the application's arguments; a device file is no link.
    unsafe {
        stat_device(path, into).unwrap_or_else(|| with_path(path, |path| real::lstat(path, into)))
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lstat64(path: *const c_char, into: *mut libc::stat) -> c_int {
    // SAFETY: as for `stat64`.
    unsafe { lstat(path, into) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __lxstat(
    _version: c_int,
    path: *const c_char,
    into: *mut libc::stat,
) -> c_int {
    // SAFETY: as for `__xstat`.
    unsafe { lstat(path, into) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __lxstat64(
    version: c_int,
    path: *const c_char,
    into: *mut libc::stat,
) -> c_int {
    // SAFETY: as for `__xstat`.
    unsafe { __lxstat(version, path, into) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fstatat(
    dir: c_int,
    path: *const c_char,
    into: *mut libc::stat,
    flags: c_int,
) -> c_int {
    // SAFETY: the application's arguments; paths of devices are absolute.
    unsafe {
        if names_descriptor(path, flags) && is_emulated_file(dir) {
            return stat_descriptor(dir, into);
        }
        stat_device(path, into).unwrap_or_else(|| {
            with_path_at(dir, path, |dir, path| real::fstatat(dir, path, into, flags))
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fstatat64(
    dir: c_int,
    path: *const c_char,
    into: *mut libc::stat,
    flags: c_int,
) -> c_int {
    // SAFETY: as for `stat64`.
    unsafe { fstatat(dir, path, into, flags) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __fxstatat(
    _version: c_int,
    dir: c_int,
    path: *const c_char,
    into: *mut libc::stat,
    flags: c_int,
) -> c_int {
    // SAFETY: as for `__xstat`.
    unsafe { fstatat(dir, path, into, flags) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __fxstatat64(
    version: c_int,
    dir: c_int,
    path: *const c_char,
    into: *mut libc::stat,
    flags: c_int,
) -> c_int {
    // SAFETY: as for `__xstat`.
    unsafe { __fxstatat(version, dir, path, into, flags) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fstat(fd: c_int, into: *mut libc::stat) -> c_int {
    // SAFETY: the application's arguments.
    unsafe { stat_descriptor(fd, into) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fstat64(fd: c_int, into: *mut libc::stat) -> c_int {
    // SAFETY: as for `stat64`.
    unsafe { stat_descriptor(fd, into) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __fxstat(_version: c_int, fd: c_int, into: *mut libc::stat) -> c_int {
    // SAFETY: as for `__xstat`.
    unsafe { stat_descriptor(fd, into) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __fxstat64(_version: c_int, fd: c_int, into: *mut libc::stat) -> c_int {
    // SAFETY: as for `__xstat`.
    unsafe { stat_descriptor(fd, into) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn statx(
    dir: c_int,
    path: *const c_char,
    flags: c_int,
    mask: c_uint,
    into: *mut libc::statx,
) -> c_int {
    // SAFETY: the application's arguments, here and below.
    if let Some(node) = unsafe { Node::of(path) } {
        return run_call(-1, || {
            node.check()?;
            // SAFETY: an all-zero `statx` is a valid one.
            let mut stat: libc::statx = unsafe { std::mem::zeroed() };
            stat.stx_mask = libc::STATX_BASIC_STATS;
            stat.stx_nlink = 1;
            stat.stx_blksize = 4096;
            fill_device_statx(&mut stat, node);
            // SAFETY: the application provides room for a `statx`.
            unsafe { into.write(stat) };
            Ok(0)
        });
    }
    // SAFETY: as above.
    unsafe {
        let result = with_path_at(dir, path, |dir, path| {
            real::statx(dir, path, flags, mask, into)
        });
        if result == 0 && names_descriptor(path, flags) {
            fill_descriptor(dir, |node| fill_device_statx(&mut *into, node));
        }
        result
    }
}
