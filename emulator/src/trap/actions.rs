//! What the application may do about `SIGBUS` while ours stands.

use super::{chain, is_installed};

/// The application asks for another action for `SIGBUS`, or for the one it
/// has: answers that, or `None` if the kernel keeps it.
pub(crate) fn exchange(new: Option<libc::sigaction>) -> Option<libc::sigaction> {
    if !is_installed() {
        return None;
    }
    match new {
        Some(new) => chain::replace(new),
        None => chain::current(),
    }
}

/// The set without `SIGBUS`.
pub(crate) fn without_ours(mut set: libc::sigset_t) -> libc::sigset_t {
    // SAFETY: an initialised set.
    unsafe { libc::sigdelset(&raw mut set, libc::SIGBUS) };
    set
}
