//! What pinning memory would answer: whether a range is there, and whether
//! the process may lock that much.

use super::spec::{Errno, Result};

/// Counts pinned bytes against the limit of the process.
#[derive(Debug, Default)]
pub(super) struct Locked {
    bytes: u64,
}

impl Locked {
    /// Takes `bytes` more, of at most `limit`.
    ///
    /// # Errors
    /// `ENOMEM` above the limit.
    pub(super) fn take(&mut self, bytes: u64, limit: u64) -> Result<()> {
        let wanted = self.bytes.saturating_add(bytes);
        if wanted > limit {
            return Err(Errno(libc::ENOMEM));
        }
        self.bytes = wanted;
        Ok(())
    }

    /// Gives them back.
    pub(super) fn release(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

/// Pages that `start..start + length` touches, as whole-page range.
///
/// # Errors
/// `EINVAL` when the range wraps around or touches no page.
pub(super) fn page_range(start: u64, length: u64) -> Result<(u64, u64)> {
    let page = page_size();
    let end = start
        .checked_add(length)
        .and_then(|end| end.checked_next_multiple_of(page));
    let first = start / page * page;
    match end {
        Some(end) if end > first => Ok((first, end - first)),
        _ => Err(Errno(libc::EINVAL)),
    }
}

/// Faults a range of whole pages in, as pinning would.
///
/// # Errors
/// `EFAULT` when part of it is not mapped with that right.
pub(super) fn probe(first: u64, bytes: u64, writable: bool) -> Result<()> {
    let advice = if writable {
        libc::MADV_POPULATE_WRITE
    } else {
        libc::MADV_POPULATE_READ
    };
    loop {
        // SAFETY: madvise of these kinds only faults pages in; for memory
        // that is not there it fails.
        let done = unsafe { libc::madvise(first as *mut libc::c_void, bytes as usize, advice) };
        if done == 0 {
            return Ok(());
        }
        match errno() {
            libc::EINTR | libc::EAGAIN => {}
            // No right for that, a mapping that cannot be populated (device
            // memory), or a kernel before 5.14.
            libc::EINVAL => return mapped(first, bytes, writable),
            _ => return Err(Errno(libc::EFAULT)),
        }
    }
}

/// Whether the whole range is mapped with that right, by `/proc/self/maps`.
fn mapped(first: u64, bytes: u64, writable: bool) -> Result<()> {
    let maps = std::fs::read_to_string("/proc/self/maps").map_err(|_| Errno(libc::EFAULT))?;
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
        Err(Errno(libc::EFAULT))
    }
}

/// {start, end, rights} of a line of the maps file.
fn mapping(line: &str) -> Option<(u64, u64, &str)> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let hex = |text| u64::from_str_radix(text, 16).ok();
    Some((hex(start)?, hex(end)?, rest))
}

fn page_size() -> u64 {
    // SAFETY: sysconf only answers a number.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(size).unwrap_or(4096)
}

/// How many bytes the process may lock: `RLIMIT_MEMLOCK`, unless the calling
/// thread has `CAP_IPC_LOCK`.
pub(super) fn lock_limit() -> u64 {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is a valid place for the answer.
    let done = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) };
    if done != 0 || has_ipc_lock() {
        u64::MAX
    } else {
        limit.rlim_cur
    }
}

/// Whether the calling thread may lock as much as it wants (`CapEff`, bit 14).
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

    #[test]
    fn ranges_cover_whole_pages_and_never_wrap() {
        assert_eq!(page_range(0x1fff, 2), Ok((0x1000, 0x2000)));
        assert_eq!(page_range(0x1001, 0), Ok((0x1000, 0x1000)));
        assert_eq!(page_range(0x1000, 0), Err(Errno(libc::EINVAL)));
        assert_eq!(page_range(u64::MAX - 5, 10), Err(Errno(libc::EINVAL)));
        assert_eq!(page_range(u64::MAX - 5, 3), Err(Errno(libc::EINVAL)));
    }

    #[test]
    fn locked_bytes_count_up_to_the_limit_and_come_back() {
        let mut locked = Locked::default();
        assert_eq!(locked.take(3, 4), Ok(()));
        assert_eq!(locked.take(2, 4), Err(Errno(libc::ENOMEM)));
        assert_eq!(locked.take(1, 4), Ok(()));
        locked.release(3);
        assert_eq!(locked.take(3, 4), Ok(()));
        assert_eq!(locked.take(u64::MAX, 4), Err(Errno(libc::ENOMEM)));
    }

    #[test]
    fn memory_that_is_not_there_is_a_fault() {
        let here = vec![0_u8; 4 * 4096];
        let (first, bytes) = page_range(here.as_ptr() as u64, 4096).unwrap();
        assert_eq!(probe(first, bytes, true), Ok(()));
        assert_eq!(mapped(first, bytes, true), Ok(()));
        assert_eq!(probe(0x1000, 0x1000, false), Err(Errno(libc::EFAULT)));
        assert_eq!(mapped(0x1000, 0x1000, false), Err(Errno(libc::EFAULT)));
    }

    #[test]
    fn memory_that_is_read_only_cannot_be_written() {
        // SAFETY: a fresh anonymous mapping, unmapped below.
        let page = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_READ, flags, -1, 0)
        };
        assert_ne!(page, libc::MAP_FAILED);
        assert_eq!(probe(page as u64, 4096, false), Ok(()));
        assert_eq!(probe(page as u64, 4096, true), Err(Errno(libc::EFAULT)));
        // SAFETY: mapped above and not used any more.
        unsafe { libc::munmap(page, 4096) };
    }
}
