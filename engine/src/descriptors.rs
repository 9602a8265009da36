//! Whether the process has descriptors left: for who is about to believe that
//! something is not there because it could not be read.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// Why so many cannot be had at once; nothing if they can.
#[must_use]
pub fn lack(at_once: usize) -> Option<io::Error> {
    let mut taken = Vec::with_capacity(at_once);
    while taken.len() < at_once {
        // SAFETY: numbers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Some(io::Error::last_os_error());
        }
        // SAFETY: just made, and owned by nobody else.
        taken.push(unsafe { OwnedFd::from_raw_fd(fd) });
    }
    None
}

/// The process's limit of descriptors at this moment.
#[must_use]
pub(crate) fn limit() -> usize {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: writes the struct, which is ours.
    match unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } {
        0 => usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX),
        _ => usize::MAX,
    }
}
