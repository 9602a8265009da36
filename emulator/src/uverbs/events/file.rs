//! An event file: a pipe to which writing never blocks and loses no event.

use crate::hidden::HiddenFile;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// The emulator's side of one pipe.
#[derive(Debug)]
pub(super) struct EventFile {
    /// The non-blocking write end.
    write: HiddenFile,
    /// A second, non-blocking descriptor of the read end, to remove unread events.
    drain: HiddenFile,
    /// Records that did not fit into the pipe, oldest first.
    backlog: VecDeque<Vec<u8>>,
}

/// The maximum size of a pipe for an unprivileged process.
pub(super) const LARGEST_PIPE: libc::c_int = 1 << 20;

impl EventFile {
    pub(super) fn open() -> io::Result<(Self, OwnedFd)> {
        let mut ends = [0; 2];
        // SAFETY: `ends` has room for the two descriptors.
        if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: pipe2 has just created both; they are owned here only.
        let (reader, write) =
            unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) };
        let write = HiddenFile::new(write);
        // Only the write end is non-blocking; the two ends have separate flags.
        // SAFETY: a plain call on a descriptor we own.
        if unsafe { libc::fcntl(write.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) } < 0 {
            return Err(io::Error::last_os_error());
        }
        // Opening the link creates a new file description of the same pipe, so that
        // O_NONBLOCK does not affect the application's end.
        let link = std::ffi::CString::new(format!("/proc/self/fd/{}", reader.as_raw_fd()))?;
        let flags = libc::O_RDONLY | libc::O_NONBLOCK | libc::O_CLOEXEC;
        // SAFETY: `link` is a C string that lives through the call.
        let drain = unsafe { libc::open(link.as_ptr(), flags) };
        if drain < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: open has just created it; it is owned here only.
        let drain = HiddenFile::new(unsafe { OwnedFd::from_raw_fd(drain) });
        Ok((
            Self {
                write,
                drain,
                backlog: VecDeque::new(),
            },
            reader,
        ))
    }

    pub(super) fn push(&mut self, record: &[u8]) {
        self.backlog.push_back(record.to_vec());
        self.flush();
    }

    /// Writes the records that fit into the pipe, and enlarges a full pipe.
    fn flush(&mut self) {
        while let Some(record) = self.backlog.front() {
            match self.write.write(record) {
                Ok(_) => {
                    self.backlog.pop_front();
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) if self.grow() => {}
                Err(_) => return,
            }
        }
    }

    fn grow(&self) -> bool {
        let fd = self.write.as_raw_fd();
        // SAFETY: plain calls on a descriptor we own.
        unsafe {
            let size = libc::fcntl(fd, libc::F_GETPIPE_SZ);
            size > 0 && size < LARGEST_PIPE && libc::fcntl(fd, libc::F_SETPIPE_SZ, size * 2) > size
        }
    }

    /// Removes the unread records that match. Returns their number. A concurrent
    /// reader sees the other records slightly later.
    pub(super) fn discard(&mut self, record_len: usize, matches: impl Fn(&[u8]) -> bool) -> u32 {
        let mut unread = Vec::new();
        // Ends with the error `EAGAIN` when nothing is left.
        let _ = (&*self.drain).read_to_end(&mut unread);
        let newer = std::mem::take(&mut self.backlog);
        unread.extend(newer.into_iter().flatten());
        let mut discarded = 0;
        for record in unread.chunks(record_len) {
            if matches(record) {
                discarded += 1;
            } else {
                self.backlog.push_back(record.to_vec());
            }
        }
        self.flush();
        discarded
    }
}
