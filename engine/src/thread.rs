//! Threads of this library, which block all signals and stay off isolated CPUs; and
//! cancellation of the program's threads (pthreads(7)).

use core::cell::RefCell;
use core::ffi::{CStr, c_int, c_void};
use core::marker::PhantomData;
use core::mem::{ManuallyDrop, MaybeUninit};
use core::ptr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::{fs, io};

/// Blocks every signal in the calling thread, and in the threads that it starts.
/// Dropping this value restores the signal mask.
pub struct SignalsBlocked(libc::sigset_t);

impl SignalsBlocked {
    /// Blocks all signals until the value is dropped.
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

/// Disables cancellation of the calling thread (pthread_cancel(3)) until it is
/// dropped. Makes no system call.
///
/// A thread is cancelled inside glibc's blocking calls (`read`, `write`,
/// `nanosleep` and so on), where its stack is unwound. If a Rust function with
/// destructors is on that stack, the process aborts. Code that calls such functions
/// on a thread of the program therefore disables cancellation.
#[derive(Debug)]
pub struct CancellationDisabled {
    before: c_int,
    /// The cancellation state belongs to a thread, so the value must not move to
    /// another.
    _here: PhantomData<*const ()>,
}

impl CancellationDisabled {
    /// Disables cancellation.
    #[must_use]
    #[inline]
    pub fn new() -> Self {
        Self {
            before: Self::begin(),
            _here: PhantomData,
        }
    }

    /// Disables cancellation and returns the previous state, for [`Self::end`]. For
    /// functions that hold nothing with a destructor.
    #[inline]
    pub fn begin() -> c_int {
        let mut before = 0;
        pthread_setcancelstate(CANCEL_DISABLE, &mut before);
        before
    }

    /// Restores the state that [`Self::begin`] returned.
    #[inline]
    pub fn end(before: c_int) {
        let mut held = 0;
        pthread_setcancelstate(before, &mut held);
    }
}

impl Default for CancellationDisabled {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for CancellationDisabled {
    #[inline]
    fn drop(&mut self) {
        Self::end(self.before);
    }
}

/// The work of a thread that calls functions of the program: see [`Thread::calling`].
pub trait Calls: Send {
    /// Prepares the next call. Returning `false` ends the thread. Cancellation is
    /// disabled.
    fn prepare(&mut self) -> bool;

    /// Makes the prepared call, with cancellation enabled. The call may end the
    /// thread (pthread_exit(3), pthread_cancel(3)), which unwinds its stack. So
    /// this function and everything it calls hold nothing with a destructor, and do
    /// not panic.
    fn call(&self);
}

/// A thread of this library, with all signals blocked. Dropping the handle detaches it.
///
/// The threads of `std` are not used: starting one allocates memory that
/// [`memory`](crate::memory) cannot supply.
#[derive(Debug)]
pub struct Thread(libc::pthread_t);

thread_local! {
    /// The work of a calling thread, from its start to its end.
    static WORK: RefCell<Option<Box<dyn Calls>>> = const { RefCell::new(None) };
}

/// What a thread runs.
type Run = Box<dyn FnOnce() + Send>;
type Main = extern "C" fn(*mut c_void) -> *mut c_void;

impl Thread {
    /// Starts a thread that runs a function. A panic ends the thread.
    ///
    /// # Errors
    /// There is no memory, or the limit of threads is reached.
    pub fn start(name: &CStr, run: impl FnOnce() + Send + 'static) -> io::Result<Self> {
        extern "C" fn main(run: *mut c_void) -> *mut c_void {
            // SAFETY: from `Box::into_raw` in `create`, and only this thread has it.
            let run = unsafe { Box::from_raw(run.cast::<Run>()) };
            // The panic message was printed on the standard error output.
            if catch_unwind(AssertUnwindSafe(run)).is_err() {
                tracing::error!("a thread of the library panicked");
            }
            ptr::null_mut()
        }
        let run: Run = Box::new(run);
        // SAFETY: `main` takes the box of a `Run`.
        unsafe { Self::create(name, main, Box::new(run)) }
    }

    /// Starts a thread that calls functions of the program, which may end the thread; it runs on no
    /// isolated CPU. The thread drops `work` as it ends.
    ///
    /// `catch_unwind` does not survive a forced unwind, and neither does a value with a
    /// destructor on the stack. This thread has no such function or value below the call: its
    /// state is in `WORK`, which is dropped in whatever way the thread ends.
    ///
    /// # Errors
    /// There is no memory, or the limit of threads is reached.
    pub fn calling(name: &CStr, work: impl Calls + 'static) -> io::Result<Self> {
        type Unwinds = extern "C-unwind" fn(*mut c_void) -> *mut c_void;
        // SAFETY: only glibc calls the function, and unwinds it as C allows; for a
        // call the two ABIs are the same.
        let main = unsafe { core::mem::transmute::<Unwinds, Main>(calling_main) };
        let work: Box<dyn Calls> = Box::new(work);
        // SAFETY: `calling_main` takes the box of a `Box<dyn Calls>`.
        unsafe { Self::create(name, main, Box::new(work)) }
    }

    /// Starts a thread.
    ///
    /// # Safety
    /// `main` takes the pointer of this box.
    unsafe fn create<T: Send>(name: &CStr, main: Main, work: Box<T>) -> io::Result<Self> {
        /// The default of `std`.
        const STACK: usize = 2 << 20;
        let work = Box::into_raw(work);
        let _blocked = SignalsBlocked::new();
        let mut thread: libc::pthread_t = 0;
        let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
        // SAFETY: the first call initialises the attributes and the last destroys
        // them; the thread is written to a local variable; `main` turns the pointer
        // back into the box.
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
            // SAFETY: the thread was not created, so the box has one owner.
            drop(unsafe { Box::from_raw(work) });
            return Err(io::Error::from_raw_os_error(failed));
        }
        // A failure only leaves the thread without a name. SAFETY: the thread has
        // not been joined, and the name is a C string.
        unsafe { libc::pthread_setname_np(thread, name.as_ptr()) };
        Ok(Self(thread))
    }

    /// Waits until the thread has ended. Returns at once if called on the thread
    /// itself.
    pub fn join(self) {
        let this = ManuallyDrop::new(self);
        if this.is_here() {
            drop(ManuallyDrop::into_inner(this));
            return;
        }
        let _held = CancellationDisabled::new();
        // SAFETY: the thread is joined once, and was not detached.
        unsafe { libc::pthread_join(this.0, ptr::null_mut()) };
    }

    /// Returns whether this is the calling thread.
    #[must_use]
    pub fn is_here(&self) -> bool {
        self.id() == ThreadId::here()
    }

    /// Returns the thread's name for comparisons, until the thread is joined.
    #[must_use]
    pub fn id(&self) -> ThreadId {
        ThreadId(self.0)
    }
}

/// Names a thread that has not been joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadId(libc::pthread_t);

impl ThreadId {
    /// Returns that of the calling thread.
    #[must_use]
    pub fn here() -> Self {
        // SAFETY: takes no arguments.
        Self(unsafe { libc::pthread_self() })
    }
}

impl Drop for Thread {
    /// Detaches the thread, which goes on.
    fn drop(&mut self) {
        // SAFETY: the thread was neither joined nor detached.
        unsafe { libc::pthread_detach(self.0) };
    }
}

/// Runs a calling thread. The function has no value with a destructor on its stack and
/// catches no panic: see [`Thread::calling`].
extern "C-unwind" fn calling_main(work: *mut c_void) -> *mut c_void {
    let callers = CancellationDisabled::begin();
    adopt(work);
    leave_pinned_cpus();
    while let Some(work) = prepared() {
        CancellationDisabled::end(callers);
        // SAFETY: the box stays in `WORK` until the thread ends, and only this
        // thread uses it.
        unsafe { (*work).call() };
        CancellationDisabled::begin();
    }
    ptr::null_mut()
}

/// Takes ownership of the work that [`Thread::calling`] has passed.
fn adopt(work: *mut c_void) {
    // SAFETY: the pointer comes from `Box::into_raw` in `create`, and only this
    // thread has it.
    let work = unsafe { Box::from_raw(work.cast::<Box<dyn Calls>>()) };
    WORK.set(Some(*work));
}

/// Returns the work with its next call prepared, or `None` if there is no further
/// call.
fn prepared() -> Option<*const dyn Calls> {
    let prepare = || {
        WORK.with_borrow_mut(|work| {
            let work = work.as_mut()?;
            work.prepare()
                .then_some(ptr::from_ref::<dyn Calls>(&**work))
        })
    };
    // The panic message was printed on the standard error output.
    catch_unwind(AssertUnwindSafe(prepare)).unwrap_or_else(|_| {
        tracing::error!("a thread of the library panicked");
        None
    })
}

/// Sets the calling thread's affinity to every CPU that is not isolated. Best
/// effort: where the system refuses, the affinity stays as it was.
pub fn leave_pinned_cpus() {
    let isolated = fs::read_to_string("/sys/devices/system/cpu/isolated").unwrap_or_default();
    // SAFETY: a set of CPUs is plain memory, for which zero is valid.
    let mut set: libc::cpu_set_t = unsafe { core::mem::zeroed() };
    let most = 8 * size_of_val(&set);
    for cpu in 0..most {
        // SAFETY: the CPU number is within the set.
        unsafe { libc::CPU_SET(cpu, &mut set) };
    }
    for cpu in cpus(&isolated).filter(|&cpu| cpu < most) {
        // SAFETY: as above.
        unsafe { libc::CPU_CLR(cpu, &mut set) };
    }
    // SAFETY: the set lives through the call, and its size is passed. The kernel
    // ignores the CPUs that do not exist or that the process may not use.
    let _ = unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) };
}

/// Returns the CPUs of a list such as `2-5,7`.
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
    fn cancellation_is_disabled_and_enabled_again() {
        let state = || {
            let state = CancellationDisabled::begin();
            CancellationDisabled::end(state);
            state
        };
        assert_eq!(state(), 0);
        let held = CancellationDisabled::new();
        let inner = CancellationDisabled::new();
        assert_eq!(state(), CANCEL_DISABLE);
        drop(inner);
        assert_eq!(state(), CANCEL_DISABLE);
        drop(held);
        assert_eq!(state(), 0);
    }

    /// Counts calls, and the drop.
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
                // SAFETY: nothing on this stack has a destructor.
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
    fn a_calling_thread_ends_by_its_own_decision_or_inside_its_call() {
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
            let thread = Thread::calling(c"calls", work).expect("a thread");
            thread.join();
            assert!(is_over.load(Ordering::Acquire), "dropped by the thread");
            assert_eq!(calls.load(Ordering::Relaxed), expected);
        }
    }

    #[test]
    fn the_signal_mask_is_restored() {
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
