//! Checks whether the process has file descriptors left. Code that treats a file
//! that cannot be opened as missing checks this first.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// Returns `None` if the process can open `at_once` descriptors at once, otherwise
/// the error of the attempt.
#[must_use]
pub fn shortage(at_once: usize) -> Option<io::Error> {
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
