//! The checks of pinning memory: whether a range is mapped, and whether the
//! process may lock that many bytes.

use crate::refusal::{OrRefuse, refuse, refuse_if};
use crate::residency::page_size;
use crate::spec::Result;

const UNMAPPED: &str = "part of the region is not mapped, or not writable although the access \
                        flags include IBV_ACCESS_LOCAL_WRITE or IBV_ACCESS_MW_BIND";

/// Counts pinned bytes against the limit of the process.
#[derive(Debug, Default)]
pub(super) struct LockedMemory {
    bytes: u64,
}

impl LockedMemory {
    /// Adds `bytes` to the locked memory.
    ///
    /// # Errors
    /// `ENOMEM` if the total would exceed `limit`.
    pub(super) fn lock(&mut self, bytes: u64, limit: u64) -> Result<()> {
        let requested = self.bytes.saturating_add(bytes);
        refuse_if(
            requested > limit,
            libc::ENOMEM,
            "the registered memory would exceed the limit of locked memory (ulimit -l)",
        )?;
        self.bytes = requested;
        Ok(())
    }

    /// Subtracts `bytes` from the locked memory.
    pub(super) fn release(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

/// Returns the pages that `start..start + length` touches, as start and length of
/// a range of whole pages.
///
/// # Errors
/// `EINVAL` if the range wraps around, touches no page, or has more pages than the kernel
/// counts (`ib_umem_get`).
pub(super) fn page_range(start: u64, length: u64) -> Result<(u64, u64)> {
    let page = page_size();
    let end = start
        .checked_add(length)
        .and_then(|end| end.checked_next_multiple_of(page));
    let first = start / page * page;
    match end {
        Some(end) if end > first && (end - first) / page <= u32::MAX.into() => {
            Ok((first, end - first))
        }
        _ => Err(refuse(
            libc::EINVAL,
            "the region has a length of 0, or does not end before the end of the address space, \
             or has 2^32 pages or more",
        )),
    }
}

/// Faults in a range of whole pages, as pinning does.
///
/// # Errors
/// `EFAULT` if part of the range is not mapped with the required permission.
pub(super) fn fault_in(first: u64, bytes: u64, writable: bool) -> Result<()> {
    let advice = if writable {
        libc::MADV_POPULATE_WRITE
    } else {
        libc::MADV_POPULATE_READ
    };
    loop {
        // SAFETY: madvise with these values only faults pages in; it fails for
        // memory that is not mapped.
        let done = unsafe { libc::madvise(first as *mut libc::c_void, bytes as usize, advice) };
        if done == 0 {
            return Ok(());
        }
        match errno() {
            libc::EINTR | libc::EAGAIN => {}
            // No permission, a mapping that cannot be populated (device
            // memory), or a kernel before 5.14.
            libc::EINVAL => return check_mapped(first, bytes, writable),
            _ => return Err(refuse(libc::EFAULT, UNMAPPED)),
        }
    }
}

/// Checks in `/proc/self/maps` whether the whole range is mapped with the
/// required permission.
fn check_mapped(first: u64, bytes: u64, writable: bool) -> Result<()> {
    let maps = std::fs::read_to_string("/proc/self/maps").or_refuse(
        libc::EFAULT,
        "/proc/self/maps, which shows whether the region is mapped, cannot be read",
    )?;
    let mut reached = first;
    for line in maps.lines() {
        let Some((start, end, rights)) = mapping(line) else {
            continue;
        };
        let allowed = rights.starts_with(if writable { "rw" } else { "r" });
        if start <= reached && reached < end && allowed {
            reached = end;
        }
    }
    if reached >= first + bytes {
        Ok(())
    } else {
        Err(refuse(libc::EFAULT, UNMAPPED))
    }
}

/// Parses a line of the maps file: {start, end, permissions}.
fn mapping(line: &str) -> Option<(u64, u64, &str)> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let hex = |text| u64::from_str_radix(text, 16).ok();
    Some((hex(start)?, hex(end)?, rest))
}

/// Returns how many bytes the process may lock: `RLIMIT_MEMLOCK`, unless the calling
/// thread has `CAP_IPC_LOCK`.
pub(super) fn lock_limit() -> u64 {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is valid memory for the result.
    let done = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) };
    if done != 0 || has_ipc_lock() {
        u64::MAX
    } else {
        limit.rlim_cur
    }
}

/// Returns whether the calling thread has `CAP_IPC_LOCK` (`CapEff`, bit 14).
fn has_ipc_lock() -> bool {
    const CAP_IPC_LOCK: u32 = 14;
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    bits.is_some_and(|bits| bits >> CAP_IPC_LOCK & 1 != 0)
}

fn errno() -> i32 {
    std::io::Error::last_os_error()
        .raw_os_error()
        .unwrap_or(libc::EINVAL)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Errno;

    #[test]
    fn ranges_cover_whole_pages_and_never_wrap() {
        assert_eq!(page_range(0x1fff, 2), Ok((0x1000, 0x2000)));
        assert_eq!(page_range(0x1001, 0), Ok((0x1000, 0x1000)));
        assert_eq!(page_range(0x1000, 0), Err(Errno(libc::EINVAL)));
        assert_eq!(page_range(u64::MAX - 5, 10), Err(Errno(libc::EINVAL)));
        assert_eq!(page_range(u64::MAX - 5, 3), Err(Errno(libc::EINVAL)));
    }

    #[test]
    fn locked_bytes_count_up_to_the_limit_and_can_be_released() {
        let mut locked = LockedMemory::default();
        assert_eq!(locked.lock(3, 4), Ok(()));
        assert_eq!(locked.lock(2, 4), Err(Errno(libc::ENOMEM)));
        assert_eq!(locked.lock(1, 4), Ok(()));
        locked.release(3);
        assert_eq!(locked.lock(3, 4), Ok(()));
        assert_eq!(locked.lock(u64::MAX, 4), Err(Errno(libc::ENOMEM)));
    }

    #[test]
    fn unmapped_memory_is_a_fault() {
        let buffer = vec![0_u8; 4 * 4096];
        let (first, bytes) = page_range(buffer.as_ptr() as u64, 4096).unwrap();
        assert_eq!(fault_in(first, bytes, true), Ok(()));
        assert_eq!(check_mapped(first, bytes, true), Ok(()));
        assert_eq!(fault_in(0x1000, 0x1000, false), Err(Errno(libc::EFAULT)));
        assert_eq!(
            check_mapped(0x1000, 0x1000, false),
            Err(Errno(libc::EFAULT))
        );
    }

    #[test]
    fn read_only_memory_cannot_be_pinned_for_writing() {
        // SAFETY: a fresh anonymous mapping, unmapped below.
        let page = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_READ, flags, -1, 0)
        };
        assert_ne!(page, libc::MAP_FAILED);
        assert_eq!(fault_in(page as u64, 4096, false), Ok(()));
        assert_eq!(fault_in(page as u64, 4096, true), Err(Errno(libc::EFAULT)));
        // SAFETY: mapped above and not used any more.
        unsafe { libc::munmap(page, 4096) };
    }
}
