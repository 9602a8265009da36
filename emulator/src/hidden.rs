//! Descriptors that the program does not know: pipes, locks and shared memory of the emulated
//! devices.
//!
//! A forked child closes its copies: a lock would outlive the parent, and a pipe would not end with
//! it.
//!
//! Decision: `docs/decisions/076-forked-children-begin-anew.md`

use std::fs::File;
use std::io::{self, Write};
use std::ops::Deref;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

/// Descriptors from this number on are not recorded.
const LIMIT: usize = 65_536;

static HIDDEN: [AtomicBool; LIMIT] = [const { AtomicBool::new(false) }; LIMIT];
/// No descriptor from this number on was ever hidden.
static END: AtomicUsize = AtomicUsize::new(0);

/// A file of which the program does not know.
#[derive(Debug)]
pub(crate) struct HiddenFile(File);

impl HiddenFile {
    /// Hides an open file.
    pub(crate) fn new(file: impl Into<OwnedFd>) -> Self {
        let file = File::from(file.into());
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
    fn a_hidden_file_is_recorded_until_it_is_closed() {
        let hidden = HiddenFile::new(File::open("/dev/null").unwrap());
        let fd = hidden.as_raw_fd();
        assert!(is_hidden(fd) && from(0).any(|it| it == fd));
        assert!(from(fd.cast_unsigned() + 1).all(|it| it != fd));
        drop(hidden);
        assert!(!is_hidden(fd));
        assert!(!is_hidden(-1) && !is_hidden(RawFd::MAX));
    }
}
