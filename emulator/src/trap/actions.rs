//! What the application may do about the signals that we handle ourselves.

use super::is_installed;
use crate::guard;

/// The application asks for another action for a signal, or for the one it
/// has: answers that, or `None` if the kernel keeps it.
pub(crate) fn exchange(
    signal: libc::c_int,
    new: Option<libc::sigaction>,
) -> Option<libc::sigaction> {
    let chain = match signal {
        libc::SIGBUS if is_installed() => &super::THEIRS,
        libc::SIGSEGV if guard::is_installed() => &guard::THEIRS,
        _ => return None,
    };
    match new {
        Some(new) => chain.replace(new),
        None => chain.current(),
    }
}

/// The set without the signals that must reach us on any thread.
pub(crate) fn without_ours(mut set: libc::sigset_t) -> libc::sigset_t {
    for signal in [libc::SIGBUS, libc::SIGSEGV] {
        // SAFETY: an initialised set.
        unsafe { libc::sigdelset(&raw mut set, signal) };
    }
    set
}
