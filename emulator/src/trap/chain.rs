//! The application's own handling of a signal, which ours stands before.
//!
//! While our handler is installed the application's `sigaction` for this
//! signal reads and writes what is kept here. A signal that is not ours is
//! handed on the way the kernel would deliver it, as far as that can be done
//! from a handler: on the same stack, with the signals blocked that the
//! application asked for.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::preload::real;

/// What the application has asked for last. Each is left for good when the
/// next takes its place: a handler may be reading it.
pub(crate) struct Chain(AtomicPtr<libc::sigaction>);

impl Chain {
    pub(crate) const fn new() -> Self {
        Self(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// Takes the place of what the application has asked for; answers that.
    pub(crate) fn replace(&self, new: libc::sigaction) -> Option<libc::sigaction> {
        let new = Box::into_raw(Box::new(new));
        // SAFETY: whatever is in there came from `Box::into_raw` and stays.
        unsafe { self.0.swap(new, Ordering::AcqRel).as_ref() }.copied()
    }

    /// What the application has asked for.
    pub(crate) fn current(&self) -> Option<libc::sigaction> {
        // SAFETY: as in `replace`.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }.copied()
    }

    /// Hands a signal on.
    ///
    /// # Safety
    /// The arguments are those of a signal handler of `SA_SIGINFO`.
    pub(crate) unsafe fn forward(
        &self,
        signal: c_int,
        info: *mut libc::siginfo_t,
        context: *mut c_void,
    ) {
        // SAFETY: the caller's promise.
        unsafe { forward(self.current(), signal, info, context) };
    }
}

/// Hands a signal on.
///
/// # Safety
/// The arguments are those of a signal handler of `SA_SIGINFO`.
unsafe fn forward(
    theirs: Option<libc::sigaction>,
    signal: c_int,
    info: *mut libc::siginfo_t,
    context: *mut c_void,
) {
    let theirs = theirs.unwrap_or_else(default_action);
    // SAFETY: the kernel's, valid while the handler runs.
    let from_fault = unsafe { (*info).si_code } > 0;
    match theirs.sa_sigaction {
        libc::SIG_IGN if !from_fault => {}
        // The kernel does not let a fault be ignored either.
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: plain data. A fault happens again when the handler
            // returns, and now ends the process; what was sent is sent again.
            unsafe {
                real::sigaction(signal, &default_action(), std::ptr::null_mut());
                if !from_fault {
                    libc::raise(signal);
                }
            }
        }
        handler => {
            let mut before = theirs.sa_mask;
            // SAFETY: two signal sets; the handler is the application's
            // own, of the type its flags say, with the arguments that the
            // kernel has made for it.
            unsafe {
                real::pthread_sigmask(libc::SIG_SETMASK, &theirs.sa_mask, &raw mut before);
                if theirs.sa_flags & libc::SA_SIGINFO != 0 {
                    let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
                        std::mem::transmute(handler);
                    handler(signal, info, context);
                } else {
                    let handler: extern "C" fn(c_int) = std::mem::transmute(handler);
                    handler(signal);
                }
                real::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
            }
        }
    }
}

fn default_action() -> libc::sigaction {
    // SAFETY: plain data; all zeros is the default action, no flags, no mask.
    unsafe { std::mem::zeroed() }
}
