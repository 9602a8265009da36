//! The application's own action for a signal that the emulator handles.
//!
//! While the emulator's handler is installed, the application's `sigaction` for
//! the signal reads and writes the action kept here. A signal that does not
//! concern the emulator is forwarded as the kernel would deliver it, as far as
//! that is possible from a handler: on the same stack, and with the signals
//! blocked that the application requested.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::real;

/// The application's last action. A replaced action is never freed, since a
/// handler may be reading it.
pub(crate) struct ApplicationAction(AtomicPtr<libc::sigaction>);

impl ApplicationAction {
    pub(crate) const fn new() -> Self {
        Self(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// Replaces the application's action and returns the previous one.
    pub(crate) fn replace(&self, new: libc::sigaction) -> Option<libc::sigaction> {
        let new = Box::into_raw(Box::new(new));
        // SAFETY: the pointer came from `Box::into_raw` and is never freed.
        unsafe { self.0.swap(new, Ordering::AcqRel).as_ref() }.copied()
    }

    /// Returns the application's action.
    pub(crate) fn current(&self) -> Option<libc::sigaction> {
        // SAFETY: as for `replace`.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }.copied()
    }

    /// Forwards a signal to the application.
    ///
    /// # Safety
    /// The arguments are those of a running `SA_SIGINFO` handler.
    pub(crate) unsafe fn forward(
        &self,
        signal: c_int,
        info: *mut libc::siginfo_t,
        context: *mut c_void,
    ) {
        // SAFETY: the arguments are those of a running signal handler.
        unsafe { forward(self.current(), signal, info, context) };
    }
}

/// Forwards a signal to `action`.
///
/// # Safety
/// The arguments are those of a running `SA_SIGINFO` handler.
unsafe fn forward(
    action: Option<libc::sigaction>,
    signal: c_int,
    info: *mut libc::siginfo_t,
    context: *mut c_void,
) {
    let action = action.unwrap_or_else(default_action);
    // SAFETY: provided by the kernel, valid while the handler runs.
    let from_fault = unsafe { (*info).si_code } > 0;
    match action.sa_sigaction {
        libc::SIG_IGN if !from_fault => {}
        // The kernel does not let a program ignore a fault either.
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: plain data. A fault recurs when the handler returns and
            // then kills the process; a signal that was sent is raised again.
            unsafe {
                real::sigaction(signal, &default_action(), std::ptr::null_mut());
                if !from_fault {
                    libc::raise(signal);
                }
            }
        }
        handler => {
            let mut before = action.sa_mask;
            // SAFETY: two signal sets; the handler is the application's own,
            // of the type given by its flags, called with the arguments that
            // the kernel provides for it.
            unsafe {
                real::pthread_sigmask(libc::SIG_SETMASK, &action.sa_mask, &raw mut before);
                if action.sa_flags & libc::SA_SIGINFO != 0 {
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
    // SAFETY: plain data; all zeros means the default action, no flags, no mask.
    unsafe { std::mem::zeroed() }
}
