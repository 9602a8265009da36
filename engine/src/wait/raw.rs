//! System calls that are not cancellation points.
//!
//! A thread that is cancelled (pthread_cancel(3)) ends inside glibc's `read`,
//! `write`, `ppoll` or `epoll_wait`. Its stack is unwound from there, and the
//! process aborts if a Rust function with destructors is on it. glibc's `syscall`
//! is not a cancellation point, so waiting, waking, posting and dequeuing use the
//! functions of this module.
//!
//! Decision: `docs/decisions/025-cancellation-between-steps.md`

use core::ptr;

use libc::{c_int, c_long, epoll_event, timespec};

use super::SignalMask;

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

/// Calls `epoll_pwait` without a timeout (`None`) or without waiting. A null mask
/// keeps the thread's mask.
pub(super) fn epoll(
    fd: c_int,
    events: &mut [epoll_event],
    is_endless: bool,
    mask: Option<SignalMask>,
) -> c_int {
    let timeout: c_long = if is_endless { -1 } else { 0 };
    // SAFETY: a descriptor, events to write to, and a mask that is read or null.
    let found = unsafe {
        libc::syscall(
            libc::SYS_epoll_pwait,
            c_long::from(fd),
            events.as_mut_ptr(),
            events.len(),
            timeout,
            mask.as_ref().map_or(ptr::null(), ptr::from_ref),
            MASK_BYTES,
        )
    };
    // At most the number of events that there is room for, or -1.
    found as c_int
}

/// Calls `epoll_pwait2`, which Linux has since 5.11.
pub(super) fn epoll_for(
    fd: c_int,
    events: &mut [epoll_event],
    timeout: &timespec,
    mask: SignalMask,
) -> c_int {
    // SAFETY: a descriptor, events to write to, a timeout and a mask that are
    // read.
    let found = unsafe {
        libc::syscall(
            libc::SYS_epoll_pwait2,
            c_long::from(fd),
            events.as_mut_ptr(),
            events.len(),
            ptr::from_ref(timeout),
            &raw const mask,
            MASK_BYTES,
        )
    };
    found as c_int
}

/// Calls `ppoll` for one descriptor to be readable, or for none.
pub(super) fn poll(fd: Option<c_int>, timeout: &timespec, mask: SignalMask) -> c_int {
    let mut watched = libc::pollfd {
        fd: fd.unwrap_or(-1),
        events: libc::POLLIN,
        revents: 0,
    };
    // The kernel writes the remaining time.
    let mut timeout = *timeout;
    // SAFETY: one descriptor to write to, a timeout to write to, and a mask that
    // is read.
    let found = unsafe {
        libc::syscall(
            libc::SYS_ppoll,
            &raw mut watched,
            c_long::from(fd.is_some()),
            &raw mut timeout,
            &raw const mask,
            MASK_BYTES,
        )
    };
    found as c_int
}
