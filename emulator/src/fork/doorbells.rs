//! The addresses at which the application has mapped doorbell pages. They keep
//! the cost of every other `munmap` at two loads.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::PerProcess;
use crate::sync::Mutex;

static LOWEST: AtomicUsize = AtomicUsize::new(usize::MAX);
static HIGHEST: AtomicUsize = AtomicUsize::new(0);

/// Start and end of each mapping. No libc call is made while it is locked, since
/// the emulator's own `munmap` calls are interposed too.
static MAPPED: PerProcess<Mutex<Vec<(usize, usize)>>> = PerProcess::new();

/// Records a mapping of a doorbell page.
pub(crate) fn add(address: usize, len: usize) {
    let end = address.saturating_add(len);
    let mut mapped = MAPPED.get().lock();
    mapped.push((address, end));
    LOWEST.fetch_min(address, Relaxed);
    HIGHEST.fetch_max(end, Relaxed);
}

/// Returns whether a range may contain a doorbell page; `false` is certain.
pub(crate) fn may_contain(address: usize, len: usize) -> bool {
    address < HIGHEST.load(Relaxed) && address.saturating_add(len) > LOWEST.load(Relaxed)
}

/// Removes the doorbell pages in a range. Returns whether there were any.
pub(crate) fn remove(address: usize, len: usize) -> bool {
    let end = address.saturating_add(len);
    let mut mapped = MAPPED.get().lock();
    let before = mapped.len();
    mapped.retain(|known| known.1 <= address || known.0 >= end);
    mapped.len() < before
}

/// Replaces the doorbell pages of a forked child's parent by memory of the child, so that
/// a post to a queue of the parent does nothing. On hardware the doorbell reaches the
/// device, which finds no new request in the parent's memory; here it could overwrite a
/// doorbell of the parent. Async-signal-safe.
pub(super) fn detach() {
    if HIGHEST.load(Relaxed) == 0 {
        return;
    }
    // A thread that held the lock at the fork was about to map or unmap a page; its
    // copy of the lock is never released.
    let Some(mapped) = MAPPED.get().try_lock() else {
        return;
    };
    for &(start, end) in &*mapped {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a mapping of a whole page that the application keeps; it accepts any
        // content.
        unsafe { libc::syscall(libc::SYS_mmap, start, end - start, rights, flags, -1, 0) };
    }
}
