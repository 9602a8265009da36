//! Counts the allocations of each thread.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static ALLOCATED: Cell<u64> = const { Cell::new(0) };
}

struct AllocationCounter;

#[global_allocator]
static TALLY: AllocationCounter = AllocationCounter;

// SAFETY: every call is forwarded to the system's allocator unchanged; the
// counter neither allocates nor needs a drop.
unsafe impl GlobalAlloc for AllocationCounter {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.set(ALLOCATED.get() + 1);
        // SAFETY: the caller has the same contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller has the same contract.
        unsafe { System.dealloc(at, layout) }
    }
}

/// Returns how often this thread has allocated.
pub fn allocations() -> u64 {
    ALLOCATED.get()
}
