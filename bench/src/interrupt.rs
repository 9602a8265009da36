//! Ctrl-C: ends a measurement after the current round, so that its results are
//! printed and written. A second Ctrl-C ends the program at once.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::failure::Failure;

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn note(_: libc::c_int) {
    INTERRUPTED.store(true, Ordering::Relaxed);
}

/// Notes the next SIGINT instead of ending the program.
pub(crate) fn catch() {
    // SAFETY: all fields are integers and pointers, for which zero is a valid value.
    let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
    action.sa_sigaction = note as extern "C" fn(libc::c_int) as libc::sighandler_t;
    // The default action is restored by the first signal.
    action.sa_flags = libc::SA_RESETHAND | libc::SA_RESTART;
    // SAFETY: `action` is complete, and `note` only stores to an atomic variable,
    // which a signal handler may do.
    unsafe { libc::sigaction(libc::SIGINT, &raw const action, core::ptr::null_mut()) };
}

/// Returns the failure of an interrupted run, once Ctrl-C was noted.
pub(crate) fn check() -> Result<(), Failure> {
    match INTERRUPTED.load(Ordering::Relaxed) {
        true => Err(Failure::run(
            "interrupted by Ctrl-C; the rounds until then are in the results",
        )),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_signal_is_noted() {
        assert!(check().is_ok());
        catch();
        // SAFETY: raises a signal in this thread, whose handler was just set.
        unsafe { libc::raise(libc::SIGINT) };
        let failure = check().unwrap_err();
        assert_eq!(failure.status(), 3);
        INTERRUPTED.store(false, Ordering::Relaxed);
    }
}
