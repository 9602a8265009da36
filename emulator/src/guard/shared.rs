//! Mappings of files that another process can truncate.
//!
//! An access beyond the new end of such a file raises `SIGBUS`. The handler
//! replaces the whole mapping by anonymous memory and sets the flag of its owner.
//! The access then continues on private memory, and the owner notices when it
//! next checks the flag.

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

/// Watches a mapping until dropped, which must happen before the mapping is
/// unmapped.
#[derive(Debug)]
pub(crate) struct Watched(&'static WatchedRange);

#[derive(Debug)]
struct WatchedRange {
    /// 0 when the mapping is no longer watched.
    base: AtomicUsize,
    len: usize,
    lost: &'static AtomicBool,
    next: *const WatchedRange,
}

// SAFETY: `next` is set before the entry is published and never changes; the
// entry it points to is never freed. All other fields are Send and Sync.
unsafe impl Send for WatchedRange {}
// SAFETY: as above.
unsafe impl Sync for WatchedRange {}

/// All entries ever created; none is removed, since a handler may be reading it.
static FIRST: AtomicPtr<WatchedRange> = AtomicPtr::new(std::ptr::null_mut());

/// Watches a readable and writable mapping of shared memory.
pub(crate) fn watch(base: *mut u8, len: usize, lost: &'static AtomicBool) -> Watched {
    let entry = Box::leak(Box::new(WatchedRange {
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

/// Replaces the watched mapping that contains this address. Returns whether there
/// is one. For signal handlers: makes one system call and takes no lock.
pub(super) fn replace(address: usize) -> bool {
    let mut next = FIRST.load(Ordering::Acquire).cast_const();
    // SAFETY: entries are leaked boxes, fully initialised when published.
    while let Some(entry) = unsafe { next.as_ref() } {
        let base = entry.base.load(Ordering::Acquire);
        if base != 0 && (base..base + entry.len).contains(&address) {
            return replace_entry(base, entry);
        }
        next = entry.next;
    }
    false
}

fn replace_entry(base: usize, entry: &WatchedRange) -> bool {
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: the range is a mapping that its owner keeps while the entry has
    // its base, and the interrupted access shows that it does. All accesses to
    // it are atomics and copies that accept any content.
    let at = unsafe { libc::syscall(libc::SYS_mmap, base, entry.len, rights, flags, -1, 0) };
    entry.lost.store(true, Ordering::Release);
    usize::try_from(at) == Ok(base)
}
