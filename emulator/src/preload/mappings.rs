//! The addresses at which the application has mapped doorbell pages. They keep
//! the cost of every other `munmap` at two loads.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::sync::Mutex;

static LOWEST: AtomicUsize = AtomicUsize::new(usize::MAX);
static HIGHEST: AtomicUsize = AtomicUsize::new(0);

/// Start and end of each mapping. No libc call is made while it is locked, since
/// the emulator's own `munmap` calls are interposed too.
static MAPPED: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());

/// Records a mapping of a doorbell page.
pub(super) fn add(address: usize, len: usize) {
    let end = address.saturating_add(len);
    let mut mapped = MAPPED.lock();
    mapped.push((address, end));
    LOWEST.fetch_min(address, Relaxed);
    HIGHEST.fetch_max(end, Relaxed);
}

/// Returns whether a range may contain a doorbell page; `false` is certain.
pub(super) fn may_contain(address: usize, len: usize) -> bool {
    address < HIGHEST.load(Relaxed) && address.saturating_add(len) > LOWEST.load(Relaxed)
}

/// Removes the doorbell pages in a range. Returns whether there were any.
pub(super) fn remove(address: usize, len: usize) -> bool {
    let end = address.saturating_add(len);
    let mut mapped = MAPPED.lock();
    let before = mapped.len();
    mapped.retain(|known| known.1 <= address || known.0 >= end);
    mapped.len() < before
}
