//! The application's actions for the signals that the emulator handles itself.

use super::is_installed;
use crate::guard;

/// Replaces the application's action for a signal, or only reads it if `new` is
/// `None`. Returns the previous action, or `None` if the kernel keeps it.
pub(crate) fn exchange_action(
    signal: libc::c_int,
    new: Option<libc::sigaction>,
) -> Option<libc::sigaction> {
    let chain = match signal {
        libc::SIGBUS if is_installed() => &super::APPLICATION_ACTION,
        libc::SIGSEGV if guard::is_installed() => &guard::APPLICATION_ACTION,
        _ => return None,
    };
    match new {
        Some(new) => chain.replace(new),
        None => chain.current(),
    }
}

/// Returns the set without the signals that the emulator needs on every thread.
pub(crate) fn without_reserved(mut set: libc::sigset_t) -> libc::sigset_t {
    for signal in [libc::SIGBUS, libc::SIGSEGV] {
        // SAFETY: an initialised set.
        unsafe { libc::sigdelset(&raw mut set, signal) };
    }
    set
}
