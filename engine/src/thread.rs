//! Threads: what the library's own ones keep to (no signals, and no CPU that is
//! kept for others), and the cancellation of the program's (pthreads(7)).

use core::cell::RefCell;
use core::ffi::{CStr, c_int, c_void};
use core::marker::PhantomData;
use core::mem::{ManuallyDrop, MaybeUninit};
use core::ptr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::{fs, io};

/// Blocks every signal in the calling thread, and so in the threads it
/// starts; dropping it restores the mask.
pub struct SignalsBlocked(libc::sigset_t);

impl SignalsBlocked {
    /// Blocks them, from now until it is dropped.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "it has an effect")]
    pub fn new() -> Self {
        // SAFETY: sets of signals are plain memory; the calls below fill both.
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) =
            unsafe { (core::mem::zeroed(), core::mem::zeroed()) };
        // SAFETY: both sets are valid and distinct.
        unsafe {
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        }
        Self(before)
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        // SAFETY: the set was filled by `new`.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, core::ptr::null_mut())
        };
    }
}

unsafe extern "C" {
    // pthread.h. The libc crate does not have it on Linux.
    safe fn pthread_setcancelstate(state: c_int, before: &mut c_int) -> c_int;
}

/// `PTHREAD_CANCEL_DISABLE` of glibc.
const CANCEL_DISABLE: c_int = 1;

/// Holds off the cancellation of the calling thread (pthread_cancel(3)) until it
/// is dropped. No system call.
///
/// A thread is cancelled inside glibc's blocking calls (`read`, `write`,
/// `nanosleep` and so on), where its stack is unwound. Rust functions with
/// destructors do not survive that: the process would abort. So whatever calls
/// such a function on a thread of the program holds cancellation off.
#[derive(Debug)]
pub struct CancellationHeld {
    before: c_int,
    /// The state belongs to a thread.
    _here: PhantomData<*const ()>,
}

impl CancellationHeld {
    /// Holds it off from now on.
    #[must_use]
    #[inline]
    pub fn new() -> Self {
        Self {
            before: Self::begin(),
            _here: PhantomData,
        }
    }

    /// Holds cancellation off and returns the state before, for [`Self::end`]: for
    /// functions that hold nothing that is to be dropped.
    #[inline]
    pub fn begin() -> c_int {
        let mut before = 0;
        pthread_setcancelstate(CANCEL_DISABLE, &mut before);
        before
    }

    /// Sets the state that [`Self::begin`] has returned.
    #[inline]
    pub fn end(before: c_int) {
        let mut held = 0;
        pthread_setcancelstate(before, &mut held);
    }
}

impl Default for CancellationHeld {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for CancellationHeld {
    #[inline]
    fn drop(&mut self) {
        Self::end(self.before);
    }
}

/// What a [`CallingThread`] does.
pub trait Calls: Send {
    /// Prepares the next call. `false` ends the thread. Cancellation is held off.
    fn prepare(&mut self) -> bool;

    /// Makes the call that was prepared, with cancellation let in. The thread may
    /// end in there (pthread_exit(3), pthread_cancel(3)): then its stack is
    /// unwound, so this function and what it calls hold nothing that is to be
    /// dropped, and they do not panic.
    fn call(&self);
}

/// A thread that calls functions of the program, which may end it.
///
/// Rust's own threads end the process then: a function that catches panics does
/// not survive that its stack is unwound by anything else. Between the start of
/// this thread and such a function there is none, and nothing to be dropped. All
/// that the thread has is in `WORK`, which is dropped when the thread ends, in
/// whatever way.
#[derive(Debug)]
pub struct CallingThread(libc::pthread_t);

thread_local! {
    /// What the thread does, from its start to its end.
    static WORK: RefCell<Option<Box<dyn Calls>>> = const { RefCell::new(None) };
}

impl CallingThread {
    /// Starts a thread. `work` is dropped by the thread as it ends.
    ///
    /// # Errors
    /// There is no memory, or no further thread is allowed.
    pub fn start(name: &CStr, work: impl Calls + 'static) -> io::Result<Self> {
        /// As Rust's own threads have.
        const STACK: usize = 2 << 20;
        type Main = extern "C" fn(*mut c_void) -> *mut c_void;
        type Unwinds = extern "C-unwind" fn(*mut c_void) -> *mut c_void;
        // SAFETY: only glibc calls it, which unwinds it as C allows; for calling
        // the two conventions are one.
        let main = unsafe { core::mem::transmute::<Unwinds, Main>(main) };
        let work: Box<Box<dyn Calls>> = Box::new(Box::new(work));
        let work = Box::into_raw(work);
        let mut thread: libc::pthread_t = 0;
        let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
        // SAFETY: attributes that the first call fills and the last empties; a
        // place for the thread; a pointer that `main` turns into the box again.
        let failed = unsafe {
            match libc::pthread_attr_init(attributes.as_mut_ptr()) {
                0 => {
                    libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), STACK);
                    let failed = libc::pthread_create(
                        &raw mut thread,
                        attributes.as_ptr(),
                        main,
                        work.cast(),
                    );
                    libc::pthread_attr_destroy(attributes.as_mut_ptr());
                    failed
                }
                failed => failed,
            }
        };
        if failed != 0 {
            // SAFETY: no thread has got it.
            drop(unsafe { Box::from_raw(work) });
            return Err(io::Error::from_raw_os_error(failed));
        }
        // A thread without its name does as well.
        // SAFETY: the thread has not been joined, and a C string.
        unsafe { libc::pthread_setname_np(thread, name.as_ptr()) };
        Ok(Self(thread))
    }

    /// Waits for its end, unless this is it.
    pub fn join(self) {
        let this = ManuallyDrop::new(self);
        if this.is_here() {
            drop(ManuallyDrop::into_inner(this));
            return;
        }
        let _held = CancellationHeld::new();
        // SAFETY: joined once; it was not detached.
        unsafe { libc::pthread_join(this.0, ptr::null_mut()) };
    }

    fn is_here(&self) -> bool {
        // SAFETY: takes nothing.
        let here = unsafe { libc::pthread_self() };
        // SAFETY: two threads, neither of them joined.
        unsafe { libc::pthread_equal(here, self.0) != 0 }
    }
}

impl Drop for CallingThread {
    /// The thread goes on, and takes its traces with it.
    fn drop(&mut self) {
        // SAFETY: it was neither joined nor detached.
        unsafe { libc::pthread_detach(self.0) };
    }
}

/// The thread. Nothing in here is to be dropped, and it catches nothing: see
/// [`CallingThread`].
extern "C-unwind" fn main(work: *mut c_void) -> *mut c_void {
    let callers = CancellationHeld::begin();
    adopt(work);
    while let Some(work) = prepared() {
        CancellationHeld::end(callers);
        // SAFETY: it stays in `WORK` until the thread ends, and only this thread
        // uses it.
        unsafe { (*work).call() };
        CancellationHeld::begin();
    }
    ptr::null_mut()
}

/// Takes over what [`CallingThread::start`] has passed.
fn adopt(work: *mut c_void) {
    // SAFETY: from `Box::into_raw` there, and passed to this thread alone.
    let work = unsafe { Box::from_raw(work.cast::<Box<dyn Calls>>()) };
    WORK.set(Some(*work));
}

/// The work, with its next call prepared; nothing if there is none.
fn prepared() -> Option<*const dyn Calls> {
    let prepare = || {
        WORK.with_borrow_mut(|work| {
            let work = work.as_mut()?;
            work.prepare()
                .then_some(ptr::from_ref::<dyn Calls>(&**work))
        })
    };
    // Its words have gone to the standard error output.
    catch_unwind(AssertUnwindSafe(prepare)).unwrap_or_else(|_| {
        tracing::error!("a thread of the library panicked");
        None
    })
}

/// Lets the calling thread run on every CPU that is not isolated. A wish: what
/// the system does not grant stays as it was.
pub fn leave_pinned_cpus() {
    let isolated = fs::read_to_string("/sys/devices/system/cpu/isolated").unwrap_or_default();
    // SAFETY: a set of CPUs is plain memory, for which zero is valid.
    let mut set: libc::cpu_set_t = unsafe { core::mem::zeroed() };
    let most = 8 * size_of_val(&set);
    for cpu in 0..most {
        // SAFETY: the CPU is within the set.
        unsafe { libc::CPU_SET(cpu, &mut set) };
    }
    for cpu in cpus(&isolated).filter(|&cpu| cpu < most) {
        // SAFETY: as above.
        unsafe { libc::CPU_CLR(cpu, &mut set) };
    }
    // SAFETY: the set lives through the call, and its size is told. The kernel
    // keeps those CPUs that there are and that the process may use.
    let _ = unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) };
}

/// The CPUs of a list such as `2-5,7`.
fn cpus(list: &str) -> impl Iterator<Item = usize> {
    list.trim().split(',').flat_map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        match (first.parse(), last.parse()) {
            (Ok(first), Ok(last)) => first..=last,
            #[expect(clippy::reversed_empty_ranges, reason = "an empty range is meant")]
            _ => 1..=0,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    #[test]
    fn lists_of_cpus_are_read_as_the_kernel_writes_them() {
        let read = |list| cpus(list).collect::<Vec<_>>();
        assert_eq!(read("2-5,7\n"), [2, 3, 4, 5, 7]);
        assert_eq!(read("3\n"), [3]);
        assert!(read("\n").is_empty());
        assert!(read("junk-4").is_empty());
    }

    #[test]
    fn cancellation_is_held_off_and_let_in_again() {
        let state = || {
            let state = CancellationHeld::begin();
            CancellationHeld::end(state);
            state
        };
        assert_eq!(state(), 0);
        let held = CancellationHeld::new();
        let inner = CancellationHeld::new();
        assert_eq!(state(), CANCEL_DISABLE);
        drop(inner);
        assert_eq!(state(), CANCEL_DISABLE);
        drop(held);
        assert_eq!(state(), 0);
    }

    /// Counts calls, and the end.
    struct Counting {
        left: u32,
        calls: Arc<AtomicU32>,
        is_over: Arc<AtomicBool>,
        exits: bool,
    }

    impl Calls for Counting {
        fn prepare(&mut self) -> bool {
            self.left = self.left.saturating_sub(1);
            self.left > 0
        }

        fn call(&self) {
            self.calls.fetch_add(1, Ordering::Relaxed);
            if self.exits {
                // SAFETY: nothing on this stack is to be dropped.
                unsafe { pthread_exit(ptr::null_mut()) };
            }
        }
    }

    impl Drop for Counting {
        fn drop(&mut self) {
            self.is_over.store(true, Ordering::Release);
        }
    }

    unsafe extern "C-unwind" {
        fn pthread_exit(value: *mut c_void) -> !;
    }

    #[test]
    fn a_calling_thread_ends_as_it_says_or_by_what_it_calls() {
        for (exits, expected) in [(false, 2), (true, 1)] {
            let (calls, is_over) = (
                Arc::new(AtomicU32::new(0)),
                Arc::new(AtomicBool::new(false)),
            );
            let work = Counting {
                left: 3,
                calls: Arc::clone(&calls),
                is_over: Arc::clone(&is_over),
                exits,
            };
            let thread = CallingThread::start(c"calls", work).expect("a thread");
            thread.join();
            assert!(is_over.load(Ordering::Acquire), "dropped by the thread");
            assert_eq!(calls.load(Ordering::Relaxed), expected);
        }
    }

    #[test]
    fn the_mask_is_put_back() {
        let mask = || {
            // SAFETY: plain memory that the call fills.
            unsafe {
                let mut set: libc::sigset_t = core::mem::zeroed();
                libc::pthread_sigmask(libc::SIG_SETMASK, core::ptr::null(), &raw mut set);
                libc::sigismember(&raw const set, libc::SIGUSR1)
            }
        };
        assert_eq!(mask(), 0);
        let blocked = SignalsBlocked::new();
        assert_eq!(mask(), 1);
        drop(blocked);
        assert_eq!(mask(), 0);
    }
}
