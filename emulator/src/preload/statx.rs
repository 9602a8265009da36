//! `statx(2)`, by which programs of Rust and others look for device files.

use std::ffi::{c_char, c_int, c_uint};

use super::calls::{Call, device_file_number, run_call};
use super::real;

/// Returns the interposed function, to keep it in the link.
pub(super) fn call() -> Call {
    statx as Call
}

#[unsafe(no_mangle)]
unsafe extern "C" fn statx(
    dir: c_int,
    path: *const c_char,
    flags: c_int,
    mask: c_uint,
    into: *mut libc::statx,
) -> c_int {
    // SAFETY: `path` is null or the C string that the application passes.
    let Some(number) = (unsafe { device_file_number(path) }) else {
        // SAFETY: the application's arguments.
        return unsafe { real::statx(dir, path, flags, mask, into) };
    };
    run_call(-1, || {
        let number = number?;
        // SAFETY: an all-zero `statx` is a valid one.
        let mut found: libc::statx = unsafe { std::mem::zeroed() };
        found.stx_mask = libc::STATX_TYPE | libc::STATX_MODE | libc::STATX_SIZE;
        found.stx_mode = (libc::S_IFCHR | 0o666) as u16;
        found.stx_rdev_major = libc::major(number);
        found.stx_rdev_minor = libc::minor(number);
        // SAFETY: the application provides room for a `statx`.
        unsafe { into.write(found) };
        Ok(0)
    })
}
