//! What a C interface does when the process has no memory left.
//!
//! Rust's collections end the process if the system refuses an allocation; a C program expects
//! that the call is refused. [`Reserve`] is an allocator that serves such an allocation from a
//! pool of its own, and marks the call that the thread is in. The call goes on to its last step
//! that can be undone, [`commit`]: there it finds the mark, undoes what it did by the same path as
//! for any other error, and is refused. The pool then has its memory back.
//!
//! A [`Call`] that frees or ends something is not refused. Part of the pool is for such calls, so
//! that they need no memory of the system.
//!
//! Decision: `docs/decisions/079-refuse-a-call-without-memory.md`

use core::alloc::{GlobalAlloc, Layout};
use core::cell::{Cell, UnsafeCell};
use core::fmt::{self, Write};
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::alloc::System;

/// The bytes of a block, and its alignment. An allocation has whole blocks.
const BLOCK: usize = 64;
/// The blocks of the pool: 4 MiB, more than the longest array of a call. It has no pages until it is
/// used.
const BLOCKS: usize = 1 << 16;
/// The first blocks serve calls that free or end something only.
const FOR_ENDING: usize = BLOCKS / 4;

/// The allocator of the C libraries: the system's, and the pool for what that refuses.
pub struct Reserve;

#[repr(align(4096))]
struct Pool(UnsafeCell<[u8; BLOCK * BLOCKS]>);

// SAFETY: a thread uses the bytes of blocks only that it has taken, as `TAKEN` says.
unsafe impl Sync for Pool {}

static POOL: Pool = Pool(UnsafeCell::new([0; BLOCK * BLOCKS]));
static TAKEN: [AtomicBool; BLOCKS] = [const { AtomicBool::new(false) }; BLOCKS];
/// How many are taken.
static IN_USE: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static ACTIVITY: Cell<Activity> = const { Cell::new(Activity::Outside) };
}

/// What the thread does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Activity {
    /// No call that can be refused.
    Outside,
    /// A call that can still be refused.
    Refusable,
    /// As `Refusable`, and the pool has served it.
    Short,
    /// A call that frees or ends something.
    Ending,
    /// An allocation whose failure the code handles.
    Fallible,
}

/// A call of the C interface, or a part of one, on the thread that began it, until it is dropped.
pub struct Call {
    before: Activity,
    /// The activity is the thread's.
    _thread: core::marker::PhantomData<*const ()>,
}

impl Call {
    /// Begins a call that can be refused until it [`commit`]s.
    #[must_use]
    pub fn refusable() -> Self {
        Self::begin(Activity::Refusable)
    }

    /// Begins a call that frees or ends something, and must not fail.
    #[must_use]
    pub fn ending() -> Self {
        Self::begin(Activity::Ending)
    }

    /// Begins an allocation whose failure the code handles, such as that of a long array or of a
    /// collection that outlives the call: the pool does not serve it.
    #[must_use]
    pub fn fallible() -> Self {
        Self::begin(Activity::Fallible)
    }

    fn begin(state: Activity) -> Self {
        Self {
            before: ACTIVITY.replace(state),
            _thread: core::marker::PhantomData,
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        ACTIVITY.set(self.before);
    }
}

/// The system has refused memory during the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the process has no memory left\nfree unused objects, or raise the limit (`ulimit -v`, the memory of the container)"
)]
pub struct NoMemory;

/// The last step of a call that can be undone: from here on the call succeeds, even if the pool
/// has to serve it.
///
/// # Errors
/// [`NoMemory`], if the pool has served the call already.
pub fn commit() -> Result<(), NoMemory> {
    match ACTIVITY.get() {
        Activity::Short => {
            // What follows undoes the call.
            ACTIVITY.set(Activity::Ending);
            Err(NoMemory)
        }
        Activity::Refusable => {
            ACTIVITY.set(Activity::Outside);
            Ok(())
        }
        Activity::Outside | Activity::Ending | Activity::Fallible => Ok(()),
    }
}

/// Returns whether half of the pool is in use: what can be refused, such as a request of a peer, then
/// should be.
#[must_use]
pub fn is_short() -> bool {
    IN_USE.load(Ordering::Relaxed) >= BLOCKS / 2
}

/// Returns how often this thread has allocated by [`Reserve`]. For tests.
#[cfg(debug_assertions)]
#[must_use]
pub fn allocations() -> u64 {
    ALLOCATIONS.get()
}

#[cfg(debug_assertions)]
thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// Notes an allocation, for tests.
#[inline]
fn note() {
    #[cfg(debug_assertions)]
    ALLOCATIONS.set(ALLOCATIONS.get() + 1);
}

// SAFETY: what the system returns is passed on, and goes back to it. What the pool returns are
// whole blocks that no other allocation has, aligned as the layout says, until they are given back.
unsafe impl GlobalAlloc for Reserve {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: the caller has the same contract.
        let got = unsafe { System.alloc(layout) };
        if got.is_null() { take(layout) } else { got }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: the caller has the same contract.
        let got = unsafe { System.alloc_zeroed(layout) };
        if !got.is_null() {
            return got;
        }
        let got = take(layout);
        if !got.is_null() {
            // SAFETY: `take` has returned this many bytes.
            unsafe { got.write_bytes(0, layout.size()) };
        }
        got
    }

    #[inline]
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        match block_of(at) {
            Some(first) => give(first, layout),
            // SAFETY: not the pool's, so it is from the system, with this layout.
            None => unsafe { System.dealloc(at, layout) },
        }
    }

    #[inline]
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note();
        // SAFETY: the caller's size does not overflow with this alignment.
        let wanted = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        let got = if block_of(at).is_some() {
            // SAFETY: not of size 0, by the contract of `realloc`.
            unsafe { self.alloc(wanted) }
        } else {
            // SAFETY: from the system, with this layout.
            let got = unsafe { System.realloc(at, layout, size) };
            if !got.is_null() {
                return got;
            }
            take(wanted)
        };
        if !got.is_null() {
            // SAFETY: two allocations, both at least as long as the copy; the old one ends here.
            unsafe {
                ptr::copy_nonoverlapping(at, got, layout.size().min(size));
                self.dealloc(at, layout);
            }
        }
        got
    }
}

/// Returns the block at which memory of the pool begins; `None` for the system's memory.
#[inline]
fn block_of(at: *mut u8) -> Option<usize> {
    let offset = at.addr().wrapping_sub(POOL.0.get().addr());
    (offset < BLOCK * BLOCKS).then_some(offset / BLOCK)
}

fn blocks(layout: Layout) -> usize {
    layout.size().div_ceil(BLOCK)
}

/// Takes memory of the pool; null if it has none. Takes no lock, so that a child of fork(2) can
/// use its copy.
#[cold]
fn take(layout: Layout) -> *mut u8 {
    let from = match ACTIVITY.get() {
        Activity::Fallible => return ptr::null_mut(),
        Activity::Ending => 0,
        Activity::Refusable => {
            ACTIVITY.set(Activity::Short);
            FOR_ENDING
        }
        Activity::Short | Activity::Outside => FOR_ENDING,
    };
    let (count, step) = (blocks(layout), layout.align().div_ceil(BLOCK));
    let aligned = layout.align() <= align_of::<Pool>();
    for first in (from..(BLOCKS + 1).saturating_sub(count)).step_by(step) {
        if aligned && take_run(first, count) {
            // SAFETY: the blocks are inside the pool.
            return unsafe { POOL.0.get().cast::<u8>().add(first * BLOCK) };
        }
    }
    say_used_up(layout.size());
    ptr::null_mut()
}

/// Takes these blocks; returns false, and takes none, if another allocation has one of them.
fn take_run(first: usize, count: usize) -> bool {
    let run = &TAKEN[first..first + count];
    let free = run
        .iter()
        .take_while(|it| !it.swap(true, Ordering::Acquire))
        .count();
    IN_USE.fetch_add(free, Ordering::Relaxed);
    if free < count {
        release(&run[..free]);
    }
    free == count
}

#[cold]
fn give(first: usize, layout: Layout) {
    release(&TAKEN[first..first + blocks(layout)]);
}

fn release(run: &[AtomicBool]) {
    IN_USE.fetch_sub(run.len(), Ordering::Relaxed);
    for block in run {
        block.store(false, Ordering::Release);
    }
}

/// Says why the process ends next.
fn say_used_up(size: usize) {
    let mut line = Line {
        bytes: [0; 200],
        length: 0,
    };
    let _ = writeln!(
        line,
        "udapl: the process has no memory left: the system refused {size} bytes, and the {} KiB \
         that this library keeps for refusing calls are used up",
        BLOCK * BLOCKS / 1024
    );
    // SAFETY: the bytes are readable. The line is lost if standard error is closed.
    unsafe { libc::write(libc::STDERR_FILENO, line.bytes.as_ptr().cast(), line.length) };
}

/// A text without allocation.
struct Line {
    bytes: [u8; 200],
    length: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let to = self.bytes[self.length..].iter_mut();
        self.length += to.zip(text.bytes()).map(|(to, from)| *to = from).count();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::Mutex;

    /// The tests share the pool.
    static POOL_USED: Mutex<()> = Mutex::new(());

    fn layout(size: usize, align: usize) -> Layout {
        Layout::from_size_align(size, align).expect("a layout")
    }

    /// Takes memory of the pool, and writes all of it.
    fn taken(size: usize, align: usize) -> Option<*mut u8> {
        let got = take(layout(size, align));
        if got.is_null() {
            return None;
        }
        assert_eq!(got.addr() % align, 0);
        // SAFETY: `take` has returned this many bytes.
        unsafe { got.write_bytes(0xa5, size) };
        Some(got)
    }

    fn put_back(at: *mut u8, size: usize) {
        // SAFETY: from `take`, with this layout.
        unsafe { Reserve.dealloc(at, layout(size, 8)) };
    }

    #[test]
    fn a_call_that_the_pool_has_served_is_refused_once() {
        let _alone = POOL_USED.lock();
        assert_eq!(commit(), Ok(()), "outside a call");
        let call = Call::refusable();
        let got = taken(100, 8).expect("room");
        {
            // A call inside it, for instance of an agent.
            let _inner = Call::refusable();
            assert_eq!(commit(), Ok(()));
        }
        assert_eq!(commit(), Err(NoMemory));
        assert_eq!(commit(), Ok(()), "what undoes the call is not refused");
        put_back(got, 100);
        drop(call);
        let _call = Call::refusable();
        assert_eq!(commit(), Ok(()));
        put_back(taken(100, 8).expect("room"), 100);
        assert_eq!(commit(), Ok(()), "committed before");
    }

    #[test]
    fn what_is_taken_does_not_overlap_and_fills_the_pool() {
        let _alone = POOL_USED.lock();
        let (size, mut all) = (3 * BLOCK + 1, Vec::with_capacity(BLOCKS));
        let _call = Call::ending();
        while let Some(got) = taken(size, 8) {
            all.push(got);
        }
        assert_eq!(all.len(), BLOCKS / 4);
        all.sort_unstable();
        assert!(
            all.windows(2)
                .all(|two| two[1].addr() - two[0].addr() >= size)
        );
        for got in all {
            put_back(got, size);
        }
        let whole = taken(BLOCK * BLOCKS, 4096).expect("the pool is free again");
        put_back(whole, BLOCK * BLOCKS);
        assert_eq!(taken(8, 8192), None, "no such alignment");
        let fallible = Call::fallible();
        assert_eq!(taken(8, 8), None);
        drop(fallible);
        assert_eq!(taken(BLOCK * BLOCKS + 1, 8), None);
    }

    #[test]
    fn a_part_of_the_pool_is_for_calls_that_end_something() {
        let _alone = POOL_USED.lock();
        let most = BLOCK * (BLOCKS - FOR_ENDING);
        assert!(!is_short());
        let others = taken(most, 8).expect("all that is for other calls");
        assert!(is_short());
        assert_eq!(taken(8, 8), None);
        let call = Call::ending();
        let got = taken(BLOCK * FOR_ENDING, 8).expect("the rest");
        drop(call);
        put_back(others, most);
        assert!(!is_short());
        put_back(got, BLOCK * FOR_ENDING);
    }

    #[test]
    fn reallocating_moves_the_bytes_out_of_the_pool() {
        let _alone = POOL_USED.lock();
        let got = taken(100, 16).expect("room");
        // SAFETY: from `take`, with this layout; both results are freed with theirs.
        unsafe {
            let moved = Reserve.realloc(got, layout(100, 16), 1000);
            assert!(block_of(moved).is_none());
            assert!((0..100).all(|at| *moved.add(at) == 0xa5));
            let grown = Reserve.realloc(moved, layout(1000, 16), 2000);
            assert_eq!(*grown, 0xa5);
            Reserve.dealloc(grown, layout(2000, 16));
        }
    }

    #[test]
    fn threads_take_and_give_at_once() {
        let _alone = POOL_USED.lock();
        std::thread::scope(|scope| {
            for own in 1..=4_u8 {
                scope.spawn(move || {
                    for round in 1..200 {
                        let size = usize::from(own) * 40 + round;
                        let got = take(layout(size, 8));
                        assert!(!got.is_null());
                        // SAFETY: `take` has returned this many bytes.
                        let bytes = unsafe {
                            got.write_bytes(own, size);
                            core::slice::from_raw_parts(got, size)
                        };
                        std::thread::yield_now();
                        assert!(bytes.iter().all(|&byte| byte == own));
                        put_back(got, size);
                    }
                });
            }
        });
        let _call = Call::ending();
        let whole = taken(BLOCK * BLOCKS, 8).expect("all is given back");
        put_back(whole, BLOCK * BLOCKS);
    }
}
