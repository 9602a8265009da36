//! System calls that are not cancellation points.
//!
//! A thread that is cancelled (pthread_cancel(3)) ends inside glibc's `read`,
//! `write` or `ppoll`. Its stack is unwound from there, and the
//! process aborts if a Rust function with destructors is on it. glibc's `syscall`
//! is not a cancellation point, so waiting, waking, posting and dequeuing use the
//! functions of this module.
//!
//! Decision: `docs/decisions/025-cancellation-between-steps.md`

use core::ptr;

use libc::{c_int, c_long, epoll_event, pollfd, timespec};

use super::SignalMask;
use crate::error::last_errno;

/// The size of the kernel's signal set in bytes: `_NSIG` (64) bits.
const MASK_BYTES: c_long = 8;

/// Sets the signal mask of this thread. Returns the mask before.
pub(super) fn set_mask(mask: SignalMask) -> SignalMask {
    let mut before = 0;
    // SAFETY: one mask that is read and one that is written. The call cannot fail:
    // SIG_SETMASK is a known action.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            c_long::from(libc::SIG_SETMASK),
            &raw const mask,
            &raw mut before,
            MASK_BYTES,
        )
    };
    before
}

/// Adds `number` to an eventfd. Returns -1 with `errno` set on failure.
pub(super) fn write(fd: c_int, number: u64) -> c_long {
    // SAFETY: eight readable bytes.
    unsafe {
        libc::syscall(
            libc::SYS_write,
            c_long::from(fd),
            &raw const number,
            8_usize,
        )
    }
}

/// Reads and resets the counter of an eventfd. Returns -1 with `errno` set on
/// failure.
pub(super) fn read(fd: c_int) -> c_long {
    let mut number = 0u64;
    // SAFETY: eight writable bytes.
    unsafe { libc::syscall(libc::SYS_read, c_long::from(fd), &raw mut number, 8_usize) }
}

/// Returns the events of an epoll descriptor that are there now, at most as many as
/// there is room for: their number, or -1 with `errno` set.
pub(super) fn epoll_events(fd: c_int, events: &mut [epoll_event]) -> c_int {
    // SAFETY: a descriptor and events to write to. Without a mask, the thread's is kept.
    let found = unsafe {
        libc::syscall(
            libc::SYS_epoll_pwait,
            c_long::from(fd),
            events.as_mut_ptr(),
            events.len(),
            0 as c_long,
            ptr::null::<SignalMask>(),
            MASK_BYTES,
        )
    };
    found as c_int
}

/// Calls `ppoll`, without end if there is no timeout. Returns the number of descriptors
/// that it has written a result to, or the negative error number.
pub(super) fn poll(fds: &mut [pollfd], timeout: Option<timespec>, mask: SignalMask) -> c_int {
    // The kernel writes the remaining time, for a restart after a stop of the process.
    let mut timeout = timeout;
    // SAFETY: descriptors to write to, a timeout to write to or null, and a mask that
    // is read.
    let found = unsafe {
        libc::syscall(
            libc::SYS_ppoll,
            fds.as_mut_ptr(),
            fds.len(),
            timeout.as_mut().map_or(ptr::null_mut(), ptr::from_mut),
            &raw const mask,
            MASK_BYTES,
        )
    };
    match found {
        0.. => found as c_int,
        _ => -last_errno(),
    }
}
