//! Mappings of a file that another process can truncate.
//!
//! An access behind the new end of such a file raises `SIGBUS`. The handler
//! puts anonymous memory in the place of the whole mapping and sets the flag
//! of its owner, so that the access goes on, on memory that no process shares, and
//! the owner finds out at its next look.

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

/// A mapping that is watched until this is dropped, which must be before the
/// mapping goes.
#[derive(Debug)]
pub(crate) struct Watched(&'static Entry);

#[derive(Debug)]
struct Entry {
    /// 0 when the mapping is gone.
    base: AtomicUsize,
    len: usize,
    lost: &'static AtomicBool,
    next: *const Entry,
}

// SAFETY: `next` is set before the entry is published and never changes; the
// entry it points to is never freed. All else is shareable by itself.
unsafe impl Send for Entry {}
// SAFETY: as above.
unsafe impl Sync for Entry {}

/// Every mapping that was ever watched; never shortened, for a handler may be
/// reading it.
static FIRST: AtomicPtr<Entry> = AtomicPtr::new(std::ptr::null_mut());

/// Watches a mapping of shared memory, readable and writable.
pub(crate) fn watch(base: *mut u8, len: usize, lost: &'static AtomicBool) -> Watched {
    let entry = Box::leak(Box::new(Entry {
        base: AtomicUsize::new(base.addr()),
        len,
        lost,
        next: std::ptr::null(),
    }));
    let mut first = FIRST.load(Ordering::Relaxed);
    loop {
        entry.next = first;
        match FIRST.compare_exchange(first, entry, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return Watched(entry),
            Err(other) => first = other,
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.0.base.store(0, Ordering::Release);
    }
}

/// Replaces the watched mapping that holds this address, if there is one. For
/// signal handlers: it makes one system call and takes no lock.
pub(super) fn replace(address: usize) -> bool {
    let mut next = FIRST.load(Ordering::Acquire).cast_const();
    // SAFETY: entries are leaked boxes, published whole by `watch`.
    while let Some(entry) = unsafe { next.as_ref() } {
        let base = entry.base.load(Ordering::Acquire);
        if base != 0 && (base..base + entry.len).contains(&address) {
            return replace_entry(base, entry);
        }
        next = entry.next;
    }
    false
}

fn replace_entry(base: usize, entry: &Entry) -> bool {
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: the range is a mapping that its owner keeps as long as the entry
    // has its base, and the interrupted access to it shows that it does. All
    // accesses to it are atomics and copies that expect any content.
    let at = unsafe { libc::syscall(libc::SYS_mmap, base, entry.len, rights, flags, -1, 0) };
    entry.lost.store(true, Ordering::Release);
    usize::try_from(at) == Ok(base)
}
