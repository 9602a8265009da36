//! Handles in a child of fork.
//!
//! The objects belong to the parent: its device, its connections, its threads. A lock that a thread
//! of the parent held stays locked in the child, where that thread does not exist. So a child must
//! not touch any of the objects. An `atfork` handler makes all handles stale in the child, which
//! costs calls nothing. The child can create objects of its own. State that the
//! library has once per process begins empty in the child ([`crate::per_process`]).
//!
//! Decision: `docs/decisions/018-fork-invalidates-handles.md`

use core::cell::Cell;
use core::mem::ManuallyDrop;
use core::sync::atomic::{AtomicU32, Ordering};

use dat_engine::sync::MutexGuard;

use super::ARENA;
use super::arena::Resting;

thread_local! {
    /// The lock of the arena while this thread forks, so that the child gets a consistent arena.
    /// Has no destructor, since registering one allocates.
    static ARENA_GUARD: Cell<Option<ManuallyDrop<MutexGuard<'static, Resting>>>> =
        const { Cell::new(None) };
}

static FORKS: AtomicU32 = AtomicU32::new(0);

/// Returns how many forks separate this process from the one that loaded the library.
pub(crate) fn forks() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

/// Runs when the library is loaded. Registering the handlers with the first object would be too
/// late for a fork in another thread at that moment.
// SAFETY: `.init_array` holds pointers to functions of this type.
#[used]
#[unsafe(link_section = ".init_array")]
static WATCH: extern "C" fn() = watch;

/// Registers the fork handlers.
extern "C" fn watch() {
    // SAFETY: the handlers allocate nothing and wait only for the lock of the arena, which threads
    // hold briefly and never across a fork. `pthread_atfork` fails only without memory; the handles
    // then stay live in a child, and the engine refuses calls that touch the device.
    unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
}

extern "C" fn before() {
    let arena = ARENA.lock();
    ARENA_GUARD.set(Some(ManuallyDrop::new(arena)));
}

extern "C" fn in_parent() {
    drop(ARENA_GUARD.take().map(ManuallyDrop::into_inner));
}

extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    ARENA.invalidate_all();
    drop(ARENA_GUARD.take().map(ManuallyDrop::into_inner));
}
