//! The libc calls that remove pages from their addresses: see [`crate::residency`].
//!
//! libc itself unmaps without these functions, in `free` and `realloc` of large
//! blocks. So pages are compared before and after these calls.
//!
//! Allocators make some of these calls under their locks, so nothing here allocates.
#![allow(clippy::missing_safety_doc)] // each is libc's function, with its contract

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::calls::{Call, errno, run_infallible, set_errno};
use super::session;
use crate::fork;
use crate::fork::doorbells;
use crate::real;
use crate::residency::{self, Pagemap, with_table};

/// All interposed functions of this file. A reference to this keeps them in the link.
pub(super) const ALL: &[fn() -> Call] = &[
    || brk as Call,
    || free as Call,
    || madvise as Call,
    || mremap as Call,
    || munmap as Call,
    || realloc as Call,
    || sbrk as Call,
];

/// Makes a call that removes the pages of a range, if it succeeds. Does not change errno.
pub(super) fn removing<T>(
    at: *const c_void,
    len: usize,
    call: residency::Call,
    make: impl FnOnce() -> T,
    succeeded: impl FnOnce(&T) -> bool,
) -> T {
    let Some((start, end)) = registered(at, len) else {
        return make();
    };
    unchanged(|| with_table(|table| table.begin(start, end, call)));
    let made = make();
    unchanged(|| with_table(|table| table.end(start, end, succeeded(&made))));
    made
}

/// Makes a call that may remove private pages of a range; shared ones come back at the next
/// access. Does not change errno.
fn comparing<T>(
    at: *const c_void,
    len: usize,
    call: residency::Call,
    make: impl FnOnce() -> T,
) -> T {
    let Some((start, end)) = registered(at, len) else {
        return make();
    };
    unchanged(|| {
        let mut pages = Pagemap::open().ok()?;
        with_table(|table| table.observe(start, end, |page| pages.is_private(page)))
    });
    let made = make();
    unchanged(|| {
        let mut pages = Pagemap::open().ok()?;
        with_table(|table| table.compare(start, end, call, |page| pages.is_absent(page)))
    });
    made
}

/// Makes a call of the allocator that may remove the pages of a block, or lower the
/// break. Other blocks that libc returns with this one are not noticed.
fn allocating<T>(
    at: *const c_void,
    len: usize,
    call: residency::Call,
    make: impl FnOnce() -> T,
) -> T {
    /// libc returns no memory when it frees less (`FASTBIN_CONSOLIDATION_THRESHOLD`).
    const LARGE: usize = 64 << 10;
    if !residency::may_contain(0, u64::MAX) {
        return make();
    }
    // SAFETY: an increment of 0 only returns the break.
    let top = || unsafe { real::sbrk(0) };
    let before = top();
    let made = match len {
        0..LARGE => make(),
        _ => comparing(at, len, call, make),
    };
    let after = top();
    if after < before {
        let page = residency::page_size() as usize;
        let kept = after.addr().next_multiple_of(page);
        let lowered = before.addr().saturating_sub(kept);
        removing(after.with_addr(kept), lowered, call, || (), |()| true);
    }
    made
}

/// Returns the addresses of a range if it may have registered pages of this process.
fn registered(at: *const c_void, len: usize) -> Option<(u64, u64)> {
    let (start, bytes) = (at.addr() as u64, len as u64);
    let may = residency::may_contain(start, bytes) && !fork::is_outsider();
    may.then(|| (start, start.saturating_add(bytes)))
}

/// Runs work that leaves errno as it is.
fn unchanged(work: impl FnOnce() -> Option<()>) {
    let before = errno();
    work();
    set_errno(before);
}

/// Returns the size of a block of the allocator; 0 if it does not matter.
fn size(block: *mut c_void) -> usize {
    if !residency::may_contain(0, u64::MAX) {
        return 0;
    }
    // SAFETY: the block that the application gives to free or realloc, or null.
    unsafe { libc::malloc_usable_size(block) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn free(block: *mut c_void) {
    static IS_FOUND: AtomicBool = AtomicBool::new(false);
    static IS_SOUGHT: AtomicBool = AtomicBool::new(false);
    if !IS_FOUND.load(Relaxed) {
        // dlsym itself may free a block: that one is not freed.
        if IS_SOUGHT.swap(true, Relaxed) {
            return;
        }
        // SAFETY: null is permitted.
        unsafe { real::free(null_mut()) };
        IS_FOUND.store(true, Relaxed);
    }
    // SAFETY: the application's argument.
    let free = || unsafe { real::free(block) };
    allocating(block, size(block), residency::Call::Free, free);
}

#[unsafe(no_mangle)]
unsafe extern "C" fn realloc(block: *mut c_void, len: usize) -> *mut c_void {
    // SAFETY: the application's arguments.
    let realloc = || unsafe { real::realloc(block, len) };
    allocating(block, size(block), residency::Call::Realloc, realloc)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn brk(end: *mut c_void) -> c_int {
    // SAFETY: the application's argument.
    let set = || unsafe { real::brk(end) };
    allocating(null_mut(), 0, residency::Call::Brk, set)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sbrk(increment: isize) -> *mut c_void {
    // SAFETY: the application's argument.
    let change = || unsafe { real::sbrk(increment) };
    allocating(null_mut(), 0, residency::Call::Brk, change)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn munmap(at: *mut c_void, len: usize) -> c_int {
    if doorbells::may_contain(at.addr(), len) && !fork::is_outsider() {
        run_infallible(|| {
            if doorbells::remove(at.addr(), len)
                && let Some(backend) = session::started()
            {
                backend.unmapped(at.addr(), len);
            }
        });
    }
    // SAFETY: the application's arguments.
    let unmap = || unsafe { real::munmap(at, len) };
    removing(at, len, residency::Call::Munmap, unmap, |done| *done == 0)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mremap(
    old: *mut c_void,
    old_len: usize,
    new_len: usize,
    flags: c_int,
    new: *mut c_void,
) -> *mut c_void {
    // SAFETY: the application's arguments; the optional one is passed on in any case.
    let remap = || unsafe { real::mremap(old, old_len, new_len, flags, new) };
    let done = |moved: &*mut c_void| *moved != libc::MAP_FAILED;
    let has_moved = |moved: &*mut c_void| done(moved) && *moved != old;
    // With a length of 0, shared memory appears at another address, too.
    let remap = || removing(old, old_len, residency::Call::Mremap, remap, has_moved);
    let replaced = match flags & libc::MREMAP_FIXED {
        0 => 0,
        _ => new_len,
    };
    let moved = removing(new, replaced, residency::Call::Mremap, remap, done);
    let kept = new_len.next_multiple_of(residency::page_size() as usize);
    if moved == old && kept < old_len {
        let behind = old.wrapping_byte_add(kept);
        removing(
            behind,
            old_len - kept,
            residency::Call::Mremap,
            || (),
            |()| true,
        );
    }
    moved
}

#[unsafe(no_mangle)]
unsafe extern "C" fn madvise(at: *mut c_void, len: usize, advice: c_int) -> c_int {
    const MADV_DONTNEED_LOCKED: c_int = 24;
    // SAFETY: the application's arguments.
    let advise = || unsafe { real::madvise(at, len, advice) };
    match advice {
        libc::MADV_DONTNEED | MADV_DONTNEED_LOCKED => {
            comparing(at, len, residency::Call::DontNeed, advise)
        }
        _ => advise(),
    }
}
