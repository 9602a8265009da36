//! The interposed libc calls by which a program could prevent `SIGBUS` from reaching
//! the handler of trapped doorbell stores, and `SIGSEGV` from reaching the handler
//! that detects missing memory ([`crate::guard`]).
//!
//! Both signals are removed from every signal mask, since a thread that stores a
//! doorbell with the signal blocked would be killed. The program's own actions
//! for them are kept, and called for all other faults. Other signals are
//! unaffected.
#![allow(clippy::missing_safety_doc)] // each is libc's function, with its contract

use std::ffi::{CStr, c_int};

use crate::guard;
use crate::real;

/// A pointer to an interposed function.
type Call = *const ();

/// An interposed signal function and its symbol name.
type NamedCall = (&'static CStr, fn() -> Call);

/// All interposed signal functions.
pub(crate) const SIGNAL_CALLS: &[NamedCall] = &[
    (c"sigaction", || sigaction as Call),
    (c"signal", || signal as Call),
    (c"sigprocmask", || sigprocmask as Call),
    (c"pthread_sigmask", || pthread_sigmask as Call),
];

#[unsafe(no_mangle)]
unsafe extern "C" fn sigaction(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    // SAFETY: the application's argument: null or an action.
    let mut new = unsafe { new.as_ref() }.copied();
    if let Some(new) = &mut new {
        new.sa_mask = without_reserved(new.sa_mask);
    }
    if let Some(action) = exchange_action(signal, new) {
        if !old.is_null() {
            // SAFETY: the application's room for an action.
            unsafe { old.write(action) };
        }
        return 0;
    }
    let new = new.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the application's arguments, or a copy that lives long enough.
    unsafe { real::sigaction(signal, new, old) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn signal(signal: c_int, handler: usize) -> usize {
    if matches!(signal, libc::SIGBUS | libc::SIGSEGV) && handler != libc::SIG_ERR {
        // SAFETY: plain data, for which zeros are valid.
        let mut new: libc::sigaction = unsafe { std::mem::zeroed() };
        new.sa_sigaction = handler;
        new.sa_flags = libc::SA_RESTART;
        if let Some(action) = exchange_action(signal, Some(new)) {
            return action.sa_sigaction;
        }
    }
    // SAFETY: the application's arguments.
    unsafe { real::signal(signal, handler) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sigprocmask(
    how: c_int,
    set: *const libc::sigset_t,
    old: *mut libc::sigset_t,
) -> c_int {
    // SAFETY: the application's arguments.
    let error = unsafe { pthread_sigmask(how, set, old) };
    if error == 0 {
        return 0;
    }
    // SAFETY: the address of this thread's errno.
    unsafe { *libc::__errno_location() = error };
    -1
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_sigmask(
    how: c_int,
    set: *const libc::sigset_t,
    old: *mut libc::sigset_t,
) -> c_int {
    // SAFETY: the application's argument: null or a set.
    let kept = unsafe { set.as_ref() }.copied().map(|set| match how {
        libc::SIG_UNBLOCK => set,
        _ => without_reserved(set),
    });
    let set = kept.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the application's arguments, or a copy that lives long enough.
    unsafe { real::pthread_sigmask(how, set, old) }
}

/// Replaces the application's action for a signal, or only reads it if `new` is
/// `None`. Returns the previous action, or `None` if the kernel keeps it.
fn exchange_action(signal: c_int, new: Option<libc::sigaction>) -> Option<libc::sigaction> {
    let chain = match signal {
        libc::SIGBUS if super::is_installed() => &super::APPLICATION_ACTION,
        libc::SIGSEGV if guard::is_installed() => &guard::APPLICATION_ACTION,
        _ => return None,
    };
    match new {
        Some(new) => chain.replace(new),
        None => chain.current(),
    }
}

/// Returns the set without the signals that the emulator needs on every thread.
fn without_reserved(mut set: libc::sigset_t) -> libc::sigset_t {
    for signal in [libc::SIGBUS, libc::SIGSEGV] {
        // SAFETY: an initialised set.
        unsafe { libc::sigdelset(&raw mut set, signal) };
    }
    set
}
