//! The interposed calls that take a path and do not open a file for access to a
//! device: they see the emulated devices in `/sys` and `/dev`.
#![allow(clippy::missing_safety_doc)] // each is libc's function, with its contract

use std::ffi::{CStr, c_char, c_int, c_void};

use super::calls::{Call, run_call};
use super::node::Node;
use super::redirect::{redirected, shown, with_path, with_path_at};
use crate::real;

/// All interposed functions of this file.
pub(super) const ALL: &[fn() -> Call] = &[
    || access as Call,
    || euidaccess as Call,
    || eaccess as Call,
    || faccessat as Call,
    || readlink as Call,
    || __readlink_chk as Call,
    || readlinkat as Call,
    || __readlinkat_chk as Call,
    || realpath as Call,
    || __realpath_chk as Call,
    || canonicalize_file_name as Call,
    || chdir as Call,
    || getxattr as Call,
    || lgetxattr as Call,
    || listxattr as Call,
    || llistxattr as Call,
    || opendir as Call,
    || scandir as Call,
    || scandir64 as Call,
    || scandirat as Call,
    || scandirat64 as Call,
    || fopen as Call,
    || fopen64 as Call,
];

/// Returns the result of `access` for the path of a device file.
unsafe fn access_device(path: *const c_char, mode: c_int) -> Option<c_int> {
    // SAFETY: `path` is the C string the application passes.
    let node = unsafe { Node::of(path) }?;
    Some(run_call(-1, || node.check_access(mode).map(|()| 0)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn access(path: *const c_char, mode: c_int) -> c_int {
    // SAFETY: the application's arguments, here and below.
    unsafe {
        access_device(path, mode)
            .unwrap_or_else(|| with_path(path, |path| real::access(path, mode)))
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn euidaccess(path: *const c_char, mode: c_int) -> c_int {
    // SAFETY: as for `access`.
    unsafe {
        access_device(path, mode)
            .unwrap_or_else(|| with_path(path, |path| real::euidaccess(path, mode)))
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn eaccess(path: *const c_char, mode: c_int) -> c_int {
    // SAFETY: another name of the same function.
    unsafe { euidaccess(path, mode) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn faccessat(
    dir: c_int,
    path: *const c_char,
    mode: c_int,
    flags: c_int,
) -> c_int {
    // SAFETY: as for `access`; paths of devices are absolute.
    unsafe {
        access_device(path, mode).unwrap_or_else(|| {
            with_path_at(dir, path, |dir, path| {
                real::faccessat(dir, path, mode, flags)
            })
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn readlink(path: *const c_char, into: *mut c_char, len: usize) -> isize {
    // SAFETY: the application's arguments.
    unsafe { with_path(path, |path| real::readlink(path, into, len)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __readlink_chk(
    path: *const c_char,
    into: *mut c_char,
    len: usize,
    room: usize,
) -> isize {
    // SAFETY: as for `readlink`; fortified programs pass the size of the buffer.
    unsafe { readlink(path, into, len.min(room)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn readlinkat(
    dir: c_int,
    path: *const c_char,
    into: *mut c_char,
    len: usize,
) -> isize {
    // SAFETY: the application's arguments.
    unsafe {
        with_path_at(dir, path, |dir, path| {
            real::readlinkat(dir, path, into, len)
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __readlinkat_chk(
    dir: c_int,
    path: *const c_char,
    into: *mut c_char,
    len: usize,
    room: usize,
) -> isize {
    // SAFETY: as for `__readlink_chk`.
    unsafe { readlinkat(dir, path, into, len.min(room)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn realpath(path: *const c_char, into: *mut c_char) -> *mut c_char {
    // SAFETY: the application's arguments.
    let Some(redirected) = (unsafe { redirected(libc::AT_FDCWD, path) }) else {
        // SAFETY: as above.
        return unsafe { real::realpath(path, into) };
    };
    // SAFETY: a C string; the application's buffer has room for any path.
    let found = unsafe { real::realpath(redirected.as_ptr(), into) };
    if found.is_null() {
        return found;
    }
    // SAFETY: `realpath` returns a C string.
    let real = unsafe { CStr::from_ptr(found) }.to_bytes_with_nul();
    if let Some(shown) = shown(real).filter(|shown| shown.len() <= real.len()) {
        // SAFETY: the string at `found` has at least as many bytes.
        unsafe { found.copy_from_nonoverlapping(shown.as_ptr().cast(), shown.len()) };
    }
    found
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __realpath_chk(
    path: *const c_char,
    into: *mut c_char,
    _room: usize,
) -> *mut c_char {
    // SAFETY: as for `realpath`. libc ends programs whose buffer is shorter than
    // PATH_MAX; they had undefined behaviour before.
    unsafe { realpath(path, into) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn canonicalize_file_name(path: *const c_char) -> *mut c_char {
    // SAFETY: the application's argument; the result is allocated.
    unsafe { realpath(path, std::ptr::null_mut()) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn chdir(path: *const c_char) -> c_int {
    // SAFETY: the application's argument.
    unsafe { with_path(path, |path| real::chdir(path)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn getxattr(
    path: *const c_char,
    name: *const c_char,
    into: *mut c_void,
    len: usize,
) -> isize {
    // SAFETY: the application's arguments, here and below. `ls` reads the access
    // control list of every file.
    unsafe { with_path(path, |path| real::getxattr(path, name, into, len)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lgetxattr(
    path: *const c_char,
    name: *const c_char,
    into: *mut c_void,
    len: usize,
) -> isize {
    // SAFETY: as for `getxattr`.
    unsafe { with_path(path, |path| real::lgetxattr(path, name, into, len)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn listxattr(path: *const c_char, into: *mut c_char, len: usize) -> isize {
    // SAFETY: as for `getxattr`.
    unsafe { with_path(path, |path| real::listxattr(path, into, len)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn llistxattr(path: *const c_char, into: *mut c_char, len: usize) -> isize {
    // SAFETY: as for `getxattr`.
    unsafe { with_path(path, |path| real::llistxattr(path, into, len)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn opendir(path: *const c_char) -> *mut c_void {
    // SAFETY: the application's argument.
    unsafe { with_path(path, |path| real::opendir(path)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn scandir(
    path: *const c_char,
    into: *mut c_void,
    filter: *const c_void,
    compare: *const c_void,
) -> c_int {
    // SAFETY: the application's arguments.
    unsafe { with_path(path, |path| real::scandir(path, into, filter, compare)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn scandir64(
    path: *const c_char,
    into: *mut c_void,
    filter: *const c_void,
    compare: *const c_void,
) -> c_int {
    // SAFETY: directory entries are the same structure on 64-bit Linux.
    unsafe { scandir(path, into, filter, compare) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn scandirat(
    dir: c_int,
    path: *const c_char,
    into: *mut c_void,
    filter: *const c_void,
    compare: *const c_void,
) -> c_int {
    // SAFETY: the application's arguments.
    unsafe {
        with_path_at(dir, path, |dir, path| {
            real::scandirat(dir, path, into, filter, compare)
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn scandirat64(
    dir: c_int,
    path: *const c_char,
    into: *mut c_void,
    filter: *const c_void,
    compare: *const c_void,
) -> c_int {
    // SAFETY: as for `scandir64`.
    unsafe { scandirat(dir, path, into, filter, compare) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fopen(path: *const c_char, mode: *const c_char) -> *mut c_void {
    // SAFETY: the application's arguments.
    unsafe { with_path(path, |path| real::fopen(path, mode)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fopen64(path: *const c_char, mode: *const c_char) -> *mut c_void {
    // SAFETY: offsets have 64 bits in both functions.
    unsafe { fopen(path, mode) }
}
