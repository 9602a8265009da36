//! Whether the process has file descriptors left. Code that takes an unreadable
//! file for a missing one checks this first.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// Returns the error that keeps the process from opening `at_once` descriptors at
/// once, or `None` if it can open them.
#[must_use]
pub fn lack(at_once: usize) -> Option<io::Error> {
    let mut taken = Vec::with_capacity(at_once);
    while taken.len() < at_once {
        // SAFETY: takes integers only.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Some(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just created, and has no other owner.
        taken.push(unsafe { OwnedFd::from_raw_fd(fd) });
    }
    None
}

/// Returns the process's current limit of descriptors.
#[must_use]
pub(crate) fn limit() -> usize {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: writes the struct, a local variable.
    match unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } {
        0 => usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX),
        _ => usize::MAX,
    }
}
