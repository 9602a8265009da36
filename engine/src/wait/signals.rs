//! Signals during a wait: a handled signal ends the wait.
//!
//! A signal that is handled between the last check for it and the sleep would go
//! unnoticed until the sleep ends. So the thread blocks all signals from the first
//! check to the end of the wait. Only inside `ppoll(2)`, which restores the
//! caller's mask and sleeps in one step, are they unblocked. The kernel decides
//! which signals count: an ignored signal does not end a `ppoll`, a handled one
//! does.

use core::fmt;
use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::ptr;
use std::sync::LazyLock;

use libc::{c_int, sigset_t};

use super::raw;

/// Signals that the thread's own instructions raise. If they were blocked, they
/// would kill the process.
const FAULTS: [c_int; 6] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGSYS,
];

/// Blocks all signals of the calling thread, except faults, until it is dropped.
/// Makes two system calls.
pub struct SignalGuard {
    caller: sigset_t,
    /// A signal mask belongs to a thread, so the guard must not move to another.
    _here: PhantomData<*const ()>,
}

impl SignalGuard {
    /// Blocks the signals.
    #[must_use]
    pub fn new() -> Self {
        static HELD_BACK: LazyLock<sigset_t> = LazyLock::new(all_but_faults);
        let mut caller = MaybeUninit::<sigset_t>::uninit();
        // SAFETY: two sets, of which the first is written. The call cannot fail:
        // SIG_SETMASK is a known action.
        unsafe {
            libc::pthread_sigmask(
                libc::SIG_SETMASK,
                &raw const *HELD_BACK,
                caller.as_mut_ptr(),
            )
        };
        Self {
            // SAFETY: the call has initialised the set.
            caller: unsafe { caller.assume_init() },
            _here: PhantomData,
        }
    }

    /// Lets pending signals be handled now, as far as the caller's own mask allows.
    /// Returns whether a handler has run. Makes one system call.
    #[must_use]
    pub fn interrupted(&self) -> bool {
        let no_time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        raw::poll(None, &no_time, self.caller()) < 0
    }

    /// Returns the caller's mask.
    pub(super) fn caller(&self) -> &sigset_t {
        &self.caller
    }
}

fn all_but_faults() -> sigset_t {
    let mut all = MaybeUninit::<sigset_t>::uninit();
    // SAFETY: the first call initialises the set, the second reads it.
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
        // Signals that are still pending are handled before the call returns.
        // SAFETY: the set was written by `new`.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, self.caller(), ptr::null_mut()) };
    }
}

impl fmt::Debug for SignalGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SignalGuard").finish_non_exhaustive()
    }
}
