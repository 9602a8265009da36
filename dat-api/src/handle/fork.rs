//! Handles in a child of a fork.
//!
//! The objects are the parent's: its device, its connections, its threads. And
//! what those threads had locked stays locked in the child, where they are no
//! more. So the child is to touch none of it: its handles go stale as it is
//! born, and cost no call a question. It may make objects of its own.

use std::cell::RefCell;

use dat_engine::sync::MutexGuard;

use super::ARENA;
use super::arena::State;

thread_local! {
    /// The arena, while this thread forks: the child gets it in good order.
    static HELD: RefCell<Option<MutexGuard<'static, State>>> = const { RefCell::new(None) };
}

/// Called as the library is loaded, before anybody can have the arena: with the
/// first object it would be too late for a fork that another thread makes at
/// that moment.
// SAFETY: the section is for pointers to functions like this one.
#[used]
#[unsafe(link_section = ".init_array")]
static WATCH: extern "C" fn() = watch;

/// Has forks told of.
extern "C" fn watch() {
    // SAFETY: the handlers allocate nothing and wait for the arena alone, which
    // no thread keeps for long and none has while it forks. It fails for want of
    // memory only; then a child's handles stay as they were, and its calls are
    // refused further down, where they touch the device.
    unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
}

extern "C" fn before() {
    let arena = ARENA.lock();
    let _ = HELD.try_with(|held| *held.borrow_mut() = Some(arena));
}

extern "C" fn in_parent() {
    let _ = HELD.try_with(RefCell::take);
}

extern "C" fn in_child() {
    ARENA.disown();
    let _ = HELD.try_with(RefCell::take);
}
