//! Access to the application's memory as by the kernel: a bad address is an error
//! (`EFAULT`), not a crash.
//!
//! The copies use `process_vm_readv`/`writev` on the process itself, which check each
//! page. They are used on the control path only.

use libc::{EFAULT, c_void, iovec};

use crate::log::warn;
use crate::refusal::{OrRefuse, refuse};
use crate::spec::{Errno, Result};

const RING: &str = "a ring or a doorbell record is not in mapped, writable memory";

/// Copies `len` bytes from the application.
///
/// # Errors
/// `EFAULT` if part of the source cannot be read.
pub(crate) fn copy_in(address: u64, len: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0u8; len];
    if len == 0 {
        return Ok(bytes);
    }
    let local = iovec {
        iov_base: bytes.as_mut_ptr().cast::<c_void>(),
        iov_len: len,
    };
    // SAFETY: the local vector is a buffer of `len` bytes; the remote one is
    // accessed by the kernel only, which checks it.
    let done =
        unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote(address, len), 1, 0) };
    whole(done, len)?;
    Ok(bytes)
}

/// Copies bytes to the application.
///
/// # Errors
/// `EFAULT` if part of the destination cannot be written.
pub(crate) fn copy_out(address: u64, bytes: &[u8]) -> Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    let local = iovec {
        iov_base: bytes.as_ptr().cast_mut().cast::<c_void>(),
        iov_len: bytes.len(),
    };
    let remote = remote(address, bytes.len());
    // SAFETY: the local vector is `bytes`, which the call only reads; the
    // kernel checks the remote one page by page. The application's command has
    // requested the bytes there.
    let done = unsafe { libc::process_vm_writev(libc::getpid(), &local, 1, &remote, 1, 0) };
    whole(done, bytes.len())
}

/// Copies a reply to a buffer of the application. A shorter buffer gets part of the
/// reply; the rest of a longer one is cleared, as by the kernel's `uverbs_response`.
///
/// # Errors
/// `EFAULT`, as for [`copy_out`].
pub(crate) fn copy_reply(address: u64, requested: usize, reply: &[u8]) -> Result<()> {
    let mut bytes = reply[..reply.len().min(requested)].to_vec();
    bytes.resize(requested, 0);
    copy_out(address, &bytes)
}

/// Checks that a ring or a doorbell record is in writable memory, since the device
/// accesses it without further checks. The kernel pins such pages.
///
/// # Errors
/// `EFAULT` if the range is not mapped writable.
pub(crate) fn check_writable(address: u64, len: u64) -> Result<()> {
    const PAGE: u64 = 4096;
    let start = address & !(PAGE - 1);
    let end = address
        .checked_add(len)
        .and_then(|end| end.checked_add(PAGE - 1))
        .or_refuse(EFAULT, RING)?
        & !(PAGE - 1);
    let start_pointer = std::ptr::with_exposed_provenance_mut::<c_void>(start as usize);
    let length = usize::try_from(end - start).or_refuse(EFAULT, RING)?;
    // SAFETY: populating maps pages and changes no bytes; the kernel refuses a
    // range that is not mapped.
    if unsafe { libc::madvise(start_pointer, length, libc::MADV_POPULATE_WRITE) } == 0 {
        return Ok(());
    }
    match last_errno() {
        // Kernels before 5.14 do not support this advice: check the mapping.
        libc::EINVAL => {
            let mut residency = vec![0u8; length / PAGE as usize];
            // SAFETY: the vector has one byte per page of the range, which is
            // all that mincore writes.
            match unsafe { libc::mincore(start_pointer, length, residency.as_mut_ptr()) } {
                0 => Ok(()),
                _ => Err(refuse(EFAULT, RING)),
            }
        }
        libc::ENOMEM | libc::EFAULT | libc::EPERM | libc::EACCES => Err(refuse(EFAULT, RING)),
        other => Err(Errno(other)),
    }
}

fn remote(address: u64, len: usize) -> iovec {
    iovec {
        iov_base: std::ptr::with_exposed_provenance_mut(address as usize),
        iov_len: len,
    }
}

/// Returns the result of a transfer of `len` bytes that moved `done`.
fn whole(done: isize, len: usize) -> Result<()> {
    if usize::try_from(done) == Ok(len) {
        return Ok(());
    }
    // A sandbox may forbid the call itself. This is not an address error, and is
    // reported.
    match last_errno() {
        errno @ (libc::ENOSYS | libc::EPERM) if done < 0 => {
            warn(
                "process_vm_readv",
                "process_vm_readv or process_vm_writev on the own process is forbidden, and the \
                 emulated device reads commands by them: allow both in the seccomp profile",
            );
            Err(Errno(errno))
        }
        _ => Err(refuse(
            EFAULT,
            "the request, or the buffer for the reply, is not in mapped memory",
        )),
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
    fn a_reply_is_cut_or_extended_to_the_buffer() {
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
