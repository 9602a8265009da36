//! An `io_uring` with registered buffers: the kernel pins their pages as it does for a
//! device, and copies between them and a file.
//!
//! Only what that needs of `<linux/io_uring.h>`, which the libc crate does not have.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU32, Ordering};

use memmap2::{MmapOptions, MmapRaw};

use crate::hidden::HiddenFile;

const FEAT_SINGLE_MMAP: u32 = 1 << 0;
const OFFSET_SQES: u64 = 0x1000_0000;
const ENTER_GETEVENTS: u32 = 1 << 0;
const REGISTER_BUFFERS2: u32 = 15;
const REGISTER_BUFFERS_UPDATE: u32 = 16;
const REGISTER_SPARSE: u32 = 1 << 0;
const CQE_BYTES: u32 = 16;

/// `struct io_uring_params`.
#[repr(C)]
#[derive(Default)]
struct Parameters {
    sq_entries: u32,
    cq_entries: u32,
    settings: [u32; 3],
    features: u32,
    reserved: [u32; 4],
    /// `struct io_sqring_offsets`, `struct io_cqring_offsets`.
    sq: Offsets,
    cq: Offsets,
}

/// Where the words of a ring are in its mapping.
#[repr(C)]
#[derive(Default)]
struct Offsets {
    head: u32,
    tail: u32,
    mask: u32,
    other: [u32; 2],
    /// Of the completions.
    cqes: u32,
    /// Of the indices of submissions.
    array: u32,
    reserved: [u32; 3],
}

/// `struct io_uring_sqe` of a copy between a file and a registered buffer.
#[repr(C)]
#[derive(Default)]
struct Submission {
    opcode: u8,
    flags: [u8; 3],
    file: i32,
    offset: u64,
    address: u64,
    length: u32,
    other: [u32; 3],
    buffer: u16,
    reserved: [u16; 11],
}

/// The direction of a copy (`IORING_OP_READ_FIXED`, `IORING_OP_WRITE_FIXED`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Copy {
    FileToBuffer = 4,
    BufferToFile = 5,
}

/// A ring of one entry.
pub(super) struct Ring {
    file: HiddenFile,
    rings: MmapRaw,
    submission: MmapRaw,
    sq: Offsets,
    cq: Offsets,
}

fn checked(result: libc::c_long) -> io::Result<libc::c_long> {
    match result {
        0.. => Ok(result),
        _ => Err(io::Error::last_os_error()),
    }
}

impl Ring {
    /// Opens a ring with this many empty buffers.
    ///
    /// # Errors
    /// `EPERM` or `ENOSYS` if `io_uring` is disabled, `EINVAL` before Linux 5.19.
    pub(super) fn open(buffers: u16) -> io::Result<Self> {
        let mut parameters = Parameters::default();
        // SAFETY: the kernel fills the parameters, which have its layout.
        let descriptor =
            checked(unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, &raw mut parameters) })?;
        // SAFETY: the call has just returned this descriptor to us.
        let file = HiddenFile::new(unsafe { OwnedFd::from_raw_fd(descriptor as RawFd) });
        if parameters.features & FEAT_SINGLE_MMAP == 0 {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let Parameters { sq, cq, .. } = parameters;
        let end = (cq.cqes + CQE_BYTES * parameters.cq_entries).max(sq.array + 4);
        let map = |offset, bytes| {
            let mut options = MmapOptions::new();
            options.offset(offset).len(bytes).map_raw(&*file)
        };
        let ring = Self {
            rings: map(0, end as usize)?,
            submission: map(OFFSET_SQES, size_of::<Submission>())?,
            file,
            sq,
            cq,
        };
        // `struct io_uring_rsrc_register`: count and flags.
        let sparse = u64::from(REGISTER_SPARSE) << 32 | u64::from(buffers);
        ring.register(REGISTER_BUFFERS2, [sparse, 0, 0, 0])?;
        Ok(ring)
    }

    /// Pins a range, of at most 1 GiB, as a buffer; unpins a buffer if the range is empty.
    ///
    /// # Errors
    /// `ENOMEM` beyond the limit of locked memory, `EFAULT` for memory that is not
    /// writable or longer, `EOPNOTSUPP` for files that cannot be pinned.
    pub(super) fn set_buffer(&self, buffer: u16, start: u64, bytes: u64) -> io::Result<()> {
        let vector = [start, bytes];
        // `struct io_uring_rsrc_update2`: offset, data, tags, count.
        let update = [buffer.into(), vector.as_ptr().addr() as u64, 0, 1];
        self.register(REGISTER_BUFFERS_UPDATE, update)
    }

    fn register(&self, operation: u32, argument: [u64; 4]) -> io::Result<()> {
        let (fd, at) = (self.file.as_raw_fd(), argument.as_ptr());
        let size = size_of_val(&argument);
        // SAFETY: the argument has the layout and the size of that of both operations.
        checked(unsafe { libc::syscall(libc::SYS_io_uring_register, fd, operation, at, size) })?;
        Ok(())
    }

    fn word(&self, offset: u32) -> &AtomicU32 {
        let word = self.rings.as_mut_ptr().wrapping_add(offset as usize);
        // SAFETY: the kernel's offset of an aligned word in the mapping, which lives as
        // long as `self`; the kernel accesses it atomically.
        unsafe { AtomicU32::from_ptr(word.cast()) }
    }

    /// Copies `length` bytes between the beginning of a file and `address`, which is
    /// where the bytes of a buffer were when it was pinned. Waits until that is done.
    ///
    /// # Errors
    /// Returns the kernel's error, `EFAULT` outside the buffer.
    pub(super) fn copy(
        &mut self,
        direction: Copy,
        file: RawFd,
        buffer: u16,
        address: u64,
        length: u32,
    ) -> io::Result<()> {
        let submission = Submission {
            opcode: direction as u8,
            file,
            address,
            length,
            buffer,
            ..Submission::default()
        };
        // SAFETY: the one entry of the ring, which the kernel does not read now.
        unsafe {
            let place: *mut Submission = self.submission.as_mut_ptr().cast();
            place.write_volatile(submission);
        }
        // The array of indices has one entry, which is 0.
        self.word(self.sq.tail).fetch_add(1, Ordering::Release);
        let fd = self.file.as_raw_fd();
        let mut to_submit = 1;
        while self.word(self.cq.head).load(Ordering::Relaxed)
            == self.word(self.cq.tail).load(Ordering::Acquire)
        {
            let (wait, none) = (ENTER_GETEVENTS, std::ptr::null::<libc::sigset_t>());
            // SAFETY: the kernel reads the entry above.
            let entered = checked(unsafe {
                libc::syscall(libc::SYS_io_uring_enter, fd, to_submit, 1, wait, none, 0)
            });
            match entered {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                Err(_) => {}
                Ok(submitted) => to_submit -= submitted,
            }
        }
        let head = self.word(self.cq.head).load(Ordering::Relaxed);
        let index = head & self.word(self.cq.mask).load(Ordering::Relaxed);
        // The result is behind the 8 bytes of `user_data`.
        let result = self.word(self.cq.cqes + CQE_BYTES * index + 8);
        let result = result.load(Ordering::Relaxed).cast_signed();
        self.word(self.cq.head)
            .store(head.wrapping_add(1), Ordering::Release);
        match result {
            done if done == length.cast_signed() => Ok(()),
            0.. => Err(io::Error::from_raw_os_error(libc::EIO)),
            error => Err(io::Error::from_raw_os_error(-error)),
        }
    }
}
