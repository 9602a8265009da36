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
