//! Whether a thread sleeps, as another thread sees it.

use std::fs;

use crate::failure::Failure;

/// A thread of this process, which sleeps in `poll` or `ppoll`.
pub(super) struct Sleeper(String);

impl Sleeper {
    /// Returns the calling thread.
    pub(super) fn this_thread() -> Result<Self, Failure> {
        // SAFETY: has no preconditions.
        let thread = unsafe { libc::gettid() };
        let path = format!("/proc/self/task/{thread}/syscall");
        match fs::read_to_string(&path) {
            Ok(_) => Ok(Self(path)),
            Err(error) => Err(Failure::environment(format!(
                "cannot read {path}: {error}; the kernel must have /proc and tell there in which system call a thread sleeps"
            ))),
        }
    }

    /// Returns whether the thread sleeps. The thread runs again, for this function too, as soon
    /// as a descriptor that it watches is readable.
    pub(super) fn sleeps(&self) -> bool {
        // "running", or the number of the system call and its arguments.
        let text = fs::read_to_string(&self.0).unwrap_or_default();
        let number = text
            .split(' ')
            .next()
            .and_then(|word| word.parse::<i64>().ok());
        number.is_some_and(|number| number == libc::SYS_ppoll || Some(number) == POLL)
    }
}

/// AArch64 has `ppoll` only.
#[cfg(target_arch = "x86_64")]
const POLL: Option<i64> = Some(libc::SYS_poll);
#[cfg(not(target_arch = "x86_64"))]
const POLL: Option<i64> = None;
