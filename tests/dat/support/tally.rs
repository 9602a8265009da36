//! Counts what each thread allocates.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static ALLOCATED: Cell<u64> = const { Cell::new(0) };
}

struct Tally;

#[global_allocator]
static TALLY: Tally = Tally;

// SAFETY: passed on to the system's allocator as it comes; the counter neither
// allocates nor needs to be dropped.
unsafe impl GlobalAlloc for Tally {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.set(ALLOCATED.get() + 1);
        // SAFETY: passed on to the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: passed on to the caller.
        unsafe { System.dealloc(at, layout) }
    }
}

/// How often this thread has allocated.
pub fn allocations() -> u64 {
    ALLOCATED.get()
}
