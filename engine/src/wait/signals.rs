//! Signals during a wait: none is handled unnoticed.
//!
//! A signal that is handled between the last look for it and the sleep would be
//! slept over. So the thread holds all signals back from the first look to the
//! end of the wait; only inside `ppoll(2)`, which restores the caller's mask and
//! sleeps in one step, are they let in. Whether one counts is for the kernel to
//! say: an ignored one does not end a `ppoll`, a handled one does.

use core::fmt;
use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::ptr;
use std::sync::LazyLock;

use libc::{c_int, sigset_t};

use super::raw;

/// What the thread's own instructions raise: held back, they would kill.
const FAULTS: [c_int; 6] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGSYS,
];

/// Holds back all signals of the calling thread, but for faults, until it is
/// dropped. Two system calls.
pub struct SignalGuard {
    caller: sigset_t,
    /// A mask belongs to a thread.
    _here: PhantomData<*const ()>,
}

impl SignalGuard {
    /// Begins.
    #[must_use]
    pub fn new() -> Self {
        static HELD_BACK: LazyLock<sigset_t> = LazyLock::new(all_but_faults);
        let mut caller = MaybeUninit::<sigset_t>::uninit();
        // SAFETY: two sets, the first of them written. It cannot fail: SIG_SETMASK
        // is a known action.
        unsafe {
            libc::pthread_sigmask(
                libc::SIG_SETMASK,
                &raw const *HELD_BACK,
                caller.as_mut_ptr(),
            )
        };
        Self {
            // SAFETY: written by the call.
            caller: unsafe { caller.assume_init() },
            _here: PhantomData,
        }
    }

    /// Lets signals that came since be handled now, as far as the caller's own
    /// mask lets them. Answers whether a handler has run. One system call.
    #[must_use]
    pub fn interrupted(&self) -> bool {
        let no_time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        raw::poll(None, &no_time, self.caller()) < 0
    }

    /// The mask that the caller had.
    pub(super) fn caller(&self) -> &sigset_t {
        &self.caller
    }
}

fn all_but_faults() -> sigset_t {
    let mut all = MaybeUninit::<sigset_t>::uninit();
    // SAFETY: a set to write to, and then one that is written.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        for fault in FAULTS {
            libc::sigdelset(all.as_mut_ptr(), fault);
        }
        all.assume_init()
    }
}

impl Default for SignalGuard {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for SignalGuard {
    fn drop(&mut self) {
        // Signals that are still held back are handled before this returns.
        // SAFETY: the set was written by `new`.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, self.caller(), ptr::null_mut()) };
    }
}

impl fmt::Debug for SignalGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SignalGuard").finish_non_exhaustive()
    }
}
