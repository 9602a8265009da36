//! How a sleeping NIC thread notices a doorbell store: `userfaultfd` in
//! write-protect mode on the application's mappings of the UAR pages.
//!
//! Before sleeping, the NIC thread protects the pages and scans them once more.
//! A store made before the protection is in memory when `UFFDIO_WRITEPROTECT`
//! returns (which flushes the TLBs of the other cores), so the scan finds it. A
//! store made after it waits in a page fault, which makes the descriptor
//! readable. No store is missed. The NIC uses a separate mapping of the pages,
//! which is never protected.
//!
//! In mode [`FaultMode::Signal`] a store to a protected page does not wait: the
//! storing thread gets a `SIGBUS` (see [`crate::trap`]).
//!
//! `UFFD_USER_MODE_ONLY` needs no privilege (Linux 5.11); write protection of
//! shared memory exists since Linux 5.19. A forked child does not inherit the
//! registration, and after `exec` neither the descriptor.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::hidden::HiddenFile;
use crate::spec::UarPage;

/// A mapping of a UAR page in the application's address space.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mapping {
    pub(super) page: UarPage,
    pub(super) addr: usize,
    pub(super) len: usize,
}

impl Mapping {
    pub(super) fn overlaps(&self, addr: usize, len: usize) -> bool {
        self.addr < addr.saturating_add(len) && addr < self.addr + self.len
    }
}

/// A `userfaultfd` that can write-protect shared memory.
#[derive(Debug)]
pub struct Userfaultfd {
    descriptor: HiddenFile,
    manner: FaultMode,
}

/// What happens to a store to a protected page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultMode {
    /// The store waits, and the descriptor becomes readable.
    Wait,
    /// The storing thread gets a `SIGBUS` with the exact address.
    Signal,
}

// <linux/userfaultfd.h>; the libc crate does not define these.
const UFFD_USER_MODE_ONLY: libc::c_int = 1;
const UFFD_API: u64 = 0xaa;
const UFFD_FEATURE_PAGEFAULT_FLAG_WP: u64 = 1 << 0;
const UFFD_FEATURE_SIGBUS: u64 = 1 << 7;
const UFFD_FEATURE_EXACT_ADDRESS: u64 = 1 << 11;
const UFFD_FEATURE_WP_HUGETLBFS_SHMEM: u64 = 1 << 12;
const UFFD_EVENT_PAGEFAULT: u8 = 0x12;
const UFFDIO_REGISTER_MODE_WP: u64 = 1 << 1;
const UFFDIO_WRITEPROTECT_MODE_WP: u64 = 1 << 0;

const fn request(read_write: bool, number: u64, size: usize) -> libc::Ioctl {
    let direction = if read_write { 3 } else { 2 };
    (direction << 30 | (size as u64) << 16 | 0xaa << 8 | number) as libc::Ioctl
}

#[repr(C)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
struct Range {
    start: u64,
    len: u64,
}

#[repr(C)]
struct Register {
    range: Range,
    mode: u64,
    ioctls: u64,
}

#[repr(C)]
struct WriteProtect {
    range: Range,
    mode: u64,
}

/// `struct uffd_msg` of a page fault.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Message {
    event: u8,
    reserved: [u8; 7],
    flags: u64,
    address: u64,
    thread: u64,
}

const UFFDIO_API: libc::Ioctl = request(true, 0x3f, size_of::<Api>());
const UFFDIO_REGISTER: libc::Ioctl = request(true, 0x00, size_of::<Register>());
const UFFDIO_UNREGISTER: libc::Ioctl = request(false, 0x01, size_of::<Range>());
const UFFDIO_WRITEPROTECT: libc::Ioctl = request(true, 0x06, size_of::<WriteProtect>());

impl Userfaultfd {
    /// Opens a `userfaultfd`.
    ///
    /// # Errors
    /// `EPERM` if `userfaultfd` is forbidden (as in some containers), `ENOSYS` if
    /// it does not exist, `EINVAL` if it cannot write-protect shared memory.
    pub fn new(manner: FaultMode) -> io::Result<Self> {
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | UFFD_USER_MODE_ONLY;
        // SAFETY: userfaultfd(2) takes one integer and touches no memory.
        let descriptor = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
        let descriptor = i32::try_from(descriptor).unwrap_or(-1);
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call above has just returned this descriptor to us.
        let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
        let descriptor = HiddenFile::new(descriptor);
        let watch = Self { descriptor, manner };
        let mut features = UFFD_FEATURE_PAGEFAULT_FLAG_WP
            | UFFD_FEATURE_EXACT_ADDRESS
            | UFFD_FEATURE_WP_HUGETLBFS_SHMEM;
        if manner == FaultMode::Signal {
            features |= UFFD_FEATURE_SIGBUS;
        }
        watch.ioctl(
            UFFDIO_API,
            &mut Api {
                api: UFFD_API,
                features,
                ioctls: 0,
            },
        )?;
        Ok(watch)
    }

    /// Returns a descriptor that is readable while a store waits.
    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        (self.manner == FaultMode::Wait).then(|| self.descriptor.as_fd())
    }

    /// Takes the waiting faults and passes the exact addresses of their stores.
    pub(super) fn read(&self, found: &mut dyn FnMut(usize)) {
        let mut messages = [Message::default(); 16];
        // SAFETY: `messages` has the given length, and any bytes are a valid
        // Message. The descriptor does not block.
        let read = unsafe {
            libc::read(
                self.descriptor.as_raw_fd(),
                messages.as_mut_ptr().cast(),
                size_of_val(&messages),
            )
        };
        let count = usize::try_from(read).unwrap_or(0) / size_of::<Message>();
        for message in &messages[..count] {
            if message.event == UFFD_EVENT_PAGEFAULT {
                found(message.address as usize);
            }
        }
    }

    /// Registers a mapping. Returns whether it can be protected.
    pub(super) fn register(&self, addr: usize, len: usize) -> bool {
        let mode = UFFDIO_REGISTER_MODE_WP;
        let mut register = Register {
            range: range(addr, len),
            mode,
            ioctls: 0,
        };
        self.ioctl(UFFDIO_REGISTER, &mut register).is_ok()
            && register.ioctls & (1 << (UFFDIO_WRITEPROTECT & 0xff)) != 0
    }

    /// Unregisters a mapping, which may be unmapped already, and lets waiting stores continue.
    pub(super) fn unregister(&self, addr: usize, len: usize) {
        let _ = self.ioctl(UFFDIO_UNREGISTER, &mut range(addr, len));
    }

    /// Protects or unprotects all mappings, which are sorted by address, and
    /// removes those that no longer exist. Returns `false` if any failed.
    pub(super) fn set_protection(&self, mappings: &mut Vec<Mapping>, on: bool) -> bool {
        let mut at = 0;
        let mut complete = true;
        while at < mappings.len() {
            let run = adjacent(&mappings[at..]);
            let (addr, len) = (
                mappings[at].addr,
                mappings[at..at + run].iter().map(|m| m.len),
            );
            if self.write_protect(addr, len.sum(), on).is_ok() {
                at += run;
                continue;
            }
            // One of the mappings is unmapped, or the kernel (before 6.4) accepts
            // only one mapping per call: try them one by one.
            let mut left = run;
            while left > 0 {
                let mapping = mappings[at];
                match self.write_protect(mapping.addr, mapping.len, on) {
                    Ok(()) => at += 1,
                    Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {
                        mappings.remove(at);
                    }
                    Err(_) => {
                        complete = false;
                        at += 1;
                    }
                }
                left -= 1;
            }
        }
        complete
    }

    fn write_protect(&self, addr: usize, len: usize, on: bool) -> io::Result<()> {
        let mode = if on { UFFDIO_WRITEPROTECT_MODE_WP } else { 0 };
        loop {
            let mut argument = WriteProtect {
                range: range(addr, len),
                mode,
            };
            match self.ioctl(UFFDIO_WRITEPROTECT, &mut argument) {
                // Another thread is changing the address space.
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {}
                other => return other,
            }
        }
    }

    fn ioctl<T>(&self, request: libc::Ioctl, argument: &mut T) -> io::Result<()> {
        // SAFETY: every `request` of this file encodes the size of the
        // `repr(C)` struct that it is called with, and the kernel accesses no
        // more than that. It changes no memory of this program except `argument`.
        let status =
            unsafe { libc::ioctl(self.descriptor.as_raw_fd(), request, &raw mut *argument) };
        if status == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }
}

fn range(addr: usize, len: usize) -> Range {
    Range {
        start: addr as u64,
        len: len as u64,
    }
}

/// Returns how many mappings follow each other without a gap. One call protects
/// them all.
fn adjacent(mappings: &[Mapping]) -> usize {
    1 + mappings
        .windows(2)
        .take_while(|pair| pair[0].addr + pair[0].len == pair[1].addr)
        .count()
}
