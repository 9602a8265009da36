//! Where the application has doorbell pages mapped, so that every other
//! `munmap` costs two loads.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

static LOWEST: AtomicUsize = AtomicUsize::new(usize::MAX);
static HIGHEST: AtomicUsize = AtomicUsize::new(0);

/// Start and end of each mapping. No call is made while it is locked: the
/// emulator's own `munmap`s come through here as well.
static MAPPED: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());

/// A doorbell page was mapped.
pub(super) fn note(address: usize, len: usize) {
    let end = address.saturating_add(len);
    let mut mapped = MAPPED.lock().unwrap_or_else(PoisonError::into_inner);
    mapped.push((address, end));
    LOWEST.fetch_min(address, Relaxed);
    HIGHEST.fetch_max(end, Relaxed);
}

/// Whether a range may hold a doorbell page; `false` is certain.
pub(super) fn may_hold(address: usize, len: usize) -> bool {
    address < HIGHEST.load(Relaxed) && address.saturating_add(len) > LOWEST.load(Relaxed)
}

/// Forgets the doorbell pages in a range; answers whether there were any.
pub(super) fn forget(address: usize, len: usize) -> bool {
    let end = address.saturating_add(len);
    let mut mapped = MAPPED.lock().unwrap_or_else(PoisonError::into_inner);
    let before = mapped.len();
    mapped.retain(|known| known.1 <= address || known.0 >= end);
    mapped.len() < before
}
