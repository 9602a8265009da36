//! Signals during a wait: a handled signal ends the wait.
//!
//! A signal that is handled between the last check for it and the sleep would go
//! unnoticed until the sleep ends. So the thread blocks all signals from the first
//! check to the end of the wait. They are unblocked only inside the system call that
//! sleeps (`ppoll`), which sets the caller's mask and sleeps in one step. The kernel
//! decides which signals count: the sleep ends if a handler runs, whether it was
//! installed with SA_RESTART or not. Ignored signals, and a stop and continue of the
//! process, do not end it.

use core::marker::PhantomData;

use libc::c_int;

use super::raw;

/// A signal mask as the kernel has it: signal `n` is bit `n - 1`. A `sigset_t` of
/// glibc begins with it, and is 16 times as long.
pub type SignalMask = u64;

/// All signals but those that must not be blocked: those that the thread's own
/// instructions raise, which would then kill the process, and the two that glibc
/// sends to its threads to cancel them and to change user ids (nptl(7)).
const ALL: SignalMask = {
    let exceptions = [
        libc::SIGSEGV,
        libc::SIGBUS,
        libc::SIGFPE,
        libc::SIGILL,
        libc::SIGTRAP,
        libc::SIGSYS,
        32,
        33,
    ];
    let (mut mask, mut at) = (!0, 0);
    while at < exceptions.len() {
        mask &= !bit(exceptions[at]);
        at += 1;
    }
    mask
};

const fn bit(signal: c_int) -> SignalMask {
    1 << (signal - 1)
}

/// Blocks all signals of the calling thread, except faults, until it is dropped.
/// Makes two system calls.
#[derive(Debug)]
pub struct SignalGuard {
    caller: SignalMask,
    /// A signal mask belongs to a thread, so the guard must not move to another.
    _here: PhantomData<*const ()>,
}

impl SignalGuard {
    /// Blocks the signals.
    #[must_use]
    pub fn new() -> Self {
        Self {
            caller: raw::set_mask(ALL),
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
        raw::poll(&mut [], Some(no_time), self.caller) < 0
    }

    /// Returns the caller's mask.
    pub(super) fn caller(&self) -> SignalMask {
        self.caller
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
        raw::set_mask(self.caller);
    }
}
