//! Descriptors that the program does not know: pipes, locks and shared memory of the emulated
//! devices.
//!
//! Programs close descriptors that they did not open, by `close` in a loop, `close_range` or
//! `closefrom` (daemons), and expect low numbers for their own. So hidden descriptors have high
//! numbers, and the interposed calls do not close them ([`crate::preload`]). A forked child closes
//! its copies: a lock would outlive the parent, and a pipe would not end with it.
//!
//! Decision: `docs/decisions/076-forked-children-begin-anew.md`

use std::fs::File;
use std::io::{self, Write};
use std::ops::Deref;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use crate::real;

/// Descriptors from this number on are not recorded.
const LIMIT: usize = 65_536;
/// The lowest number of a hidden descriptor, unless half of what the process may have is lower.
const HIGH: u64 = 4096;

static HIDDEN: [AtomicBool; LIMIT] = [const { AtomicBool::new(false) }; LIMIT];
/// No descriptor from this number on was ever hidden.
static END: AtomicUsize = AtomicUsize::new(0);

/// A file of which the program does not know.
#[derive(Debug)]
pub(crate) struct HiddenFile(File);

impl HiddenFile {
    /// Hides an open file.
    pub(crate) fn new(file: impl Into<OwnedFd>) -> Self {
        let file = File::from(raised(file.into()));
        mark(file.as_raw_fd(), true);
        Self(file)
    }
}

impl Deref for HiddenFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl Write for HiddenFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&**self).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        (&**self).flush()
    }
}

impl Drop for HiddenFile {
    fn drop(&mut self) {
        // Before the file is closed, after which the number may be reused.
        mark(self.as_raw_fd(), false);
    }
}

/// Moves a descriptor to a high number, if one is free.
fn raised(file: OwnedFd) -> OwnedFd {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: room for a limit.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    let lowest = HIGH.min(limit.rlim_cur / 2);
    // SAFETY: a plain call on a descriptor we own.
    let high = unsafe { real::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, lowest as usize) };
    if high < 0 {
        return file;
    }
    // SAFETY: the call above has just returned this descriptor to us.
    unsafe { OwnedFd::from_raw_fd(high) }
}

/// Returns whether a descriptor is hidden.
#[inline]
pub(crate) fn is_hidden(fd: RawFd) -> bool {
    record_of(fd).is_some_and(|hidden| hidden.load(Relaxed))
}

fn record_of(fd: RawFd) -> Option<&'static AtomicBool> {
    HIDDEN.get(usize::try_from(fd).ok()?)
}

fn mark(fd: RawFd, is_hidden: bool) {
    if let Some(hidden) = record_of(fd) {
        END.fetch_max(fd as usize + 1, Relaxed);
        hidden.store(is_hidden, Relaxed);
    }
}

/// Returns the hidden descriptors from `first` on, in ascending order.
pub(crate) fn from(first: u32) -> impl Iterator<Item = RawFd> {
    (first as usize..END.load(Relaxed))
        .map(|fd| fd as RawFd)
        .filter(|&fd| is_hidden(fd))
}

/// Closes a forked child's copies of all hidden descriptors. Async-signal-safe.
pub(crate) fn close_all() {
    for fd in from(0) {
        mark(fd, false);
        // SAFETY: the child's copy of a descriptor that only the emulated devices of its parent
        // use. The child has none of their objects, so nothing closes it again.
        unsafe { libc::syscall(libc::SYS_close, fd) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hidden_file_has_a_high_number_until_it_is_closed() {
        let plain = File::open("/dev/null").unwrap();
        let (low, hidden) = (plain.as_raw_fd(), HiddenFile::new(plain));
        let high = hidden.as_raw_fd();
        assert!(high > low && is_hidden(high) && !is_hidden(low));
        assert!(from(0).any(|fd| fd == high) && from(high as u32 + 1).all(|fd| fd != high));
        drop(hidden);
        assert!(!is_hidden(high));
        assert!(!is_hidden(-1) && !is_hidden(RawFd::MAX));
    }
}
