//! Forked children.
//!
//! A child of fork(2) has a copy of the parent's memory, but not its threads: the NIC does not run
//! there, and a lock that another thread held is never released. So the child uses nothing that the
//! parent's devices consist of. [`PerProcess`] values begin anew, and the parent's copies leak.
//! The child also closes its copies of the parent's hidden files ([`crate::hidden`]), and gets
//! memory of its own in place of the parent's doorbell pages. It can then open devices as any other
//! process. A command on a context of the parent is refused.
//!
//! The kernel clears [`OWNER`] in a child with memory of its own, however it was made. A fork
//! handler closes the files at once; a child of a raw clone(2) does it when it first uses the
//! library. A child of vfork(2) shares the memory, and must leave everything as it is until it
//! executes a program: see [`is_outsider`].
//!
//! Decision: `docs/decisions/076-forked-children-begin-anew.md`

pub(crate) mod doorbells;

use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, Ordering};

use crate::hidden;
use crate::limits::MAX_DEVICES;

/// A page of its own.
#[repr(align(4096))]
struct Page(AtomicI32);

/// The process to which the state in memory belongs, 0 before its first use.
static OWNER: Page = Page(AtomicI32::new(0));
/// Whether this process or an ancestor has registered the fork handler.
static IS_WATCHING: AtomicBool = AtomicBool::new(false);
/// How many ancestors have used the library before they forked.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Makes the state in memory that of this process.
extern "C" fn begin() {
    let own = own_id();
    if OWNER.0.load(Ordering::Relaxed) == own {
        return;
    }
    if IS_WATCHING.swap(true, Ordering::Relaxed) {
        OWNER.0.store(own, Ordering::Relaxed);
        hidden::close_all();
        doorbells::detach();
        FORKS.fetch_add(1, Ordering::Relaxed);
    } else {
        // SAFETY: the page holds nothing else. The handler takes no lock, allocates nothing and
        // does not unwind. If either call fails, the other does its work in most children.
        unsafe {
            let page = (&raw const OWNER).cast_mut().cast();
            libc::madvise(page, size_of::<Page>(), libc::MADV_WIPEONFORK);
            libc::pthread_atfork(None, None, Some(begin));
        }
        OWNER.0.store(own, Ordering::Relaxed);
    }
}

fn own_id() -> libc::pid_t {
    // SAFETY: getpid has no preconditions.
    unsafe { libc::getpid() }
}

/// Returns how many ancestors have used the library before they forked.
pub(crate) fn forks() -> u32 {
    if OWNER.0.load(Ordering::Relaxed) == 0 {
        begin();
    }
    FORKS.load(Ordering::Relaxed)
}

/// Returns the index of the first device, by which libraries recognise a device. A child has
/// another index for it than its parent, as after the device was replaced: librdmacm then opens
/// the device again, instead of using the context that the parent opened.
pub(crate) fn first_index() -> u32 {
    forks() * u32::from(MAX_DEVICES)
}

/// Returns whether this process is a child that shares the memory of its parent. It must not
/// change the state in it, nor take a lock.
pub(crate) fn is_outsider() -> bool {
    forks();
    OWNER.0.load(Ordering::Relaxed) != own_id()
}

/// A value of this process, initially the default. A forked child begins with a new one.
pub(crate) struct PerProcess<T>(AtomicPtr<Generation<T>>);

struct Generation<T> {
    /// [`forks`] in the process that it belongs to.
    forks: u32,
    value: T,
}

impl<T: Default + Send + Sync + 'static> PerProcess<T> {
    /// Returns a value that is created when it is first used.
    pub(crate) const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    pub(crate) fn get(&self) -> &'static T {
        let found = self.0.load(Ordering::Acquire);
        // SAFETY: null, or leaked by `begin`.
        let latest = unsafe { found.as_ref() };
        match latest.filter(|latest| latest.forks == forks()) {
            Some(own) => &own.value,
            None => self.begin(found),
        }
    }

    /// Returns the value of this process if it was used. Allocates nothing.
    pub(crate) fn begun(&self) -> Option<&'static T> {
        // SAFETY: as in `get`.
        let latest = unsafe { self.0.load(Ordering::Acquire).as_ref() };
        let own = latest.filter(|latest| latest.forks == forks())?;
        Some(&own.value)
    }

    /// Replaces the value of another process, or none, by a new one.
    #[cold]
    fn begin(&self, before: *mut Generation<T>) -> &'static T {
        let new = Box::into_raw(Box::new(Generation {
            forks: forks(),
            value: T::default(),
        }));
        let order = Ordering::AcqRel;
        let now = match self
            .0
            .compare_exchange(before, new, order, Ordering::Acquire)
        {
            Ok(_) => new,
            Err(others) => {
                // SAFETY: from `into_raw` above, and not shared.
                drop(unsafe { Box::from_raw(new) });
                // Another thread of this process was faster.
                others
            }
        };
        // SAFETY: from `into_raw`; what was stored once is never freed.
        unsafe { &(*now).value }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;
    use crate::sync::Mutex;

    /// Runs `work` in a forked child. Returns its result, which the child exits with.
    fn in_child(work: impl FnOnce() -> u8) -> i32 {
        // SAFETY: the child runs the code under test and leaves by `_exit`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: ends a child that hangs, and then the child.
            unsafe {
                libc::alarm(60);
                libc::_exit(work().into());
            }
        }
        let mut status = 0;
        // SAFETY: our own child, and room for its status.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert!(libc::WIFEXITED(status), "status {status:#x}");
        libc::WEXITSTATUS(status)
    }

    #[test]
    fn a_child_has_a_new_value_while_a_thread_of_the_parent_holds_the_lock() {
        static NUMBERS: PerProcess<Mutex<Vec<u8>>> = PerProcess::new();
        NUMBERS.get().lock().push(1);
        thread::scope(|scope| {
            let (held, is_held) = mpsc::channel();
            let (end, ended) = mpsc::channel::<()>();
            scope.spawn(move || {
                let numbers = NUMBERS.get().lock();
                held.send(()).expect("received");
                // Until the sender is dropped.
                let _ = ended.recv();
                drop(numbers);
            });
            is_held.recv().expect("the thread lives");
            let answer = in_child(|| {
                NUMBERS.get().lock().extend([5, 6]);
                let of_grandchild = in_child(|| NUMBERS.get().lock().len() as u8);
                NUMBERS.get().lock().len() as u8 + 10 * of_grandchild as u8
            });
            drop(end);
            assert_eq!(answer, 2);
        });
        assert_eq!(*NUMBERS.get().lock(), [1], "the parent's value stays");
    }

    #[test]
    fn threads_that_begin_together_get_the_same_value() {
        for _ in 0..100 {
            let count: PerProcess<Mutex<u32>> = PerProcess::new();
            thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| *count.get().lock() += 1);
                }
            });
            assert_eq!(*count.get().lock(), 4);
        }
    }
}
