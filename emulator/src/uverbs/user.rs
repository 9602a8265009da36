//! Memory of the application, as the kernel would touch it: a bad address
//! is an answer (`EFAULT`), not a crash.
//!
//! The copies go through `process_vm_readv`/`writev` on this very process,
//! which check each page. They serve the control path only.

use libc::{EFAULT, c_void, iovec};

use crate::nic::spec::{Errno, Result};

/// Copies `len` bytes from the application.
///
/// # Errors
/// `EFAULT` when not all of them can be read.
pub(super) fn copy_in(address: u64, len: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0u8; len];
    if len == 0 {
        return Ok(bytes);
    }
    let local = iovec {
        iov_base: bytes.as_mut_ptr().cast::<c_void>(),
        iov_len: len,
    };
    // SAFETY: the local vector is our own buffer of `len` bytes; the remote
    // one is only ever looked at by the kernel, which checks it.
    let done =
        unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote(address, len), 1, 0) };
    whole(done, len)?;
    Ok(bytes)
}

/// Copies bytes to the application.
///
/// # Errors
/// `EFAULT` when not all of the destination can be written.
pub(super) fn copy_out(address: u64, bytes: &[u8]) -> Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    let local = iovec {
        iov_base: bytes.as_ptr().cast_mut().cast::<c_void>(),
        iov_len: bytes.len(),
    };
    let remote = remote(address, bytes.len());
    // SAFETY: the local vector is `bytes`, which the call only reads; the
    // remote one is checked by the kernel, page by page. That the application
    // wants the bytes there is what it asked for in its command.
    let done = unsafe { libc::process_vm_writev(libc::getpid(), &local, 1, &remote, 1, 0) };
    whole(done, bytes.len())
}

/// Copies a reply of which the application may want less (it is cut) or more
/// (the rest is cleared), as the kernel's `uverbs_response`.
///
/// # Errors
/// `EFAULT` as [`copy_out`].
pub(super) fn copy_reply(address: u64, wanted: usize, reply: &[u8]) -> Result<()> {
    let mut bytes = reply[..reply.len().min(wanted)].to_vec();
    bytes.resize(wanted, 0);
    copy_out(address, &bytes)
}

/// Makes sure that a ring or a doorbell record is memory that can be written:
/// the device will do so without asking again. The kernel pins such pages.
///
/// # Errors
/// `EFAULT` when the range is not mapped writable.
pub(super) fn check_writable(address: u64, len: u64) -> Result<()> {
    const PAGE: u64 = 4096;
    let start = address & !(PAGE - 1);
    let end = address
        .checked_add(len)
        .and_then(|end| end.checked_add(PAGE - 1))
        .ok_or(Errno(EFAULT))?
        & !(PAGE - 1);
    let start_pointer = std::ptr::with_exposed_provenance_mut::<c_void>(start as usize);
    let length = usize::try_from(end - start).map_err(|_| Errno(EFAULT))?;
    // SAFETY: populating maps pages and changes no bytes; a range that is
    // not mapped is refused by the kernel.
    if unsafe { libc::madvise(start_pointer, length, libc::MADV_POPULATE_WRITE) } == 0 {
        return Ok(());
    }
    match last_errno() {
        // Kernels before 5.14 do not know the advice: see that it is mapped.
        libc::EINVAL => {
            let mut residency = vec![0u8; length / PAGE as usize];
            // SAFETY: the vector has one byte per page of the range, which is
            // all that mincore writes.
            match unsafe { libc::mincore(start_pointer, length, residency.as_mut_ptr()) } {
                0 => Ok(()),
                _ => Err(Errno(EFAULT)),
            }
        }
        libc::ENOMEM | libc::EFAULT | libc::EPERM | libc::EACCES => Err(Errno(EFAULT)),
        other => Err(Errno(other)),
    }
}

fn remote(address: u64, len: usize) -> iovec {
    iovec {
        iov_base: std::ptr::with_exposed_provenance_mut(address as usize),
        iov_len: len,
    }
}

/// What a transfer of `len` bytes that moved `done` answers.
fn whole(done: isize, len: usize) -> Result<()> {
    if usize::try_from(done) == Ok(len) {
        return Ok(());
    }
    // A sandbox may forbid the call itself: that is not the application's
    // address being bad, and says so.
    match last_errno() {
        errno @ (libc::ENOSYS | libc::EPERM) if done < 0 => {
            super::warn(
                "process_vm_readv",
                "process_vm_readv/writev on the own process is forbidden here (seccomp?); \
                 the emulated device cannot read commands without it",
            );
            Err(Errno(errno))
        }
        _ => Err(Errno(EFAULT)),
    }
}

fn last_errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_address_is_efault_in_both_directions() {
        assert_eq!(copy_in(0x10, 8), Err(Errno(EFAULT)));
        assert_eq!(copy_in(u64::MAX - 3, 8), Err(Errno(EFAULT)));
        assert_eq!(copy_out(0x10, &[1, 2]), Err(Errno(EFAULT)));
        static READ_ONLY: [u8; 8] = [7; 8];
        assert_eq!(
            copy_out(READ_ONLY.as_ptr() as u64, &[0; 8]),
            Err(Errno(EFAULT))
        );
    }

    #[test]
    fn a_reply_is_cut_or_cleared_to_what_is_wanted() {
        let mut place = [0xeeu8; 8];
        let address = place.as_mut_ptr() as u64;
        copy_reply(address, 2, &[1, 2, 3]).unwrap();
        assert_eq!(
            copy_in(address, 8).unwrap(),
            [1, 2, 0xee, 0xee, 0xee, 0xee, 0xee, 0xee]
        );
        copy_reply(address, 6, &[1, 2, 3]).unwrap();
        assert_eq!(copy_in(address, 8).unwrap(), [1, 2, 3, 0, 0, 0, 0xee, 0xee]);
    }

    #[test]
    fn unmapped_memory_is_not_writable() {
        assert_eq!(check_writable(0x1000, 64), Err(Errno(EFAULT)));
        assert_eq!(check_writable(u64::MAX - 10, 64), Err(Errno(EFAULT)));
        let ring = vec![0u8; 10_000];
        assert_eq!(check_writable(ring.as_ptr() as u64, 10_000), Ok(()));
    }
}
