//! The manners of a library's own threads: no signals, and no CPU that is kept
//! for others.

use std::fs;

/// Blocks every signal in the calling thread, and so in the threads it
/// starts; dropping it restores the mask.
pub struct SignalsBlocked(libc::sigset_t);

impl SignalsBlocked {
    /// Blocks them, from now until it is dropped.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "it has an effect")]
    pub fn new() -> Self {
        // SAFETY: sets of signals are plain memory; the calls below fill both.
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) =
            unsafe { (core::mem::zeroed(), core::mem::zeroed()) };
        // SAFETY: both sets are valid and distinct.
        unsafe {
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        }
        Self(before)
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        // SAFETY: the set was filled by `new`.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, core::ptr::null_mut())
        };
    }
}

/// Lets the calling thread run on every CPU that is not isolated. A wish: what
/// the system does not grant stays as it was.
pub fn leave_pinned_cpus() {
    let isolated = fs::read_to_string("/sys/devices/system/cpu/isolated").unwrap_or_default();
    // SAFETY: a set of CPUs is plain memory, for which zero is valid.
    let mut set: libc::cpu_set_t = unsafe { core::mem::zeroed() };
    let most = 8 * size_of_val(&set);
    for cpu in 0..most {
        // SAFETY: the CPU is within the set.
        unsafe { libc::CPU_SET(cpu, &mut set) };
    }
    for cpu in cpus(&isolated).filter(|&cpu| cpu < most) {
        // SAFETY: as above.
        unsafe { libc::CPU_CLR(cpu, &mut set) };
    }
    // SAFETY: the set lives through the call, and its size is told. The kernel
    // keeps those CPUs that there are and that the process may use.
    let _ = unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) };
}

/// The CPUs of a list such as `2-5,7`.
fn cpus(list: &str) -> impl Iterator<Item = usize> {
    list.trim().split(',').flat_map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        match (first.parse(), last.parse()) {
            (Ok(first), Ok(last)) => first..=last,
            #[expect(clippy::reversed_empty_ranges, reason = "an empty range is meant")]
            _ => 1..=0,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_read_as_the_kernel_writes_them() {
        let read = |list| cpus(list).collect::<Vec<_>>();
        assert_eq!(read("2-5,7\n"), [2, 3, 4, 5, 7]);
        assert_eq!(read("3\n"), [3]);
        assert!(read("\n").is_empty());
        assert!(read("junk-4").is_empty());
    }

    #[test]
    fn the_mask_is_put_back() {
        let mask = || {
            // SAFETY: plain memory that the call fills.
            unsafe {
                let mut set: libc::sigset_t = core::mem::zeroed();
                libc::pthread_sigmask(libc::SIG_SETMASK, core::ptr::null(), &raw mut set);
                libc::sigismember(&raw const set, libc::SIGUSR1)
            }
        };
        assert_eq!(mask(), 0);
        let blocked = SignalsBlocked::new();
        assert_eq!(mask(), 1);
        drop(blocked);
        assert_eq!(mask(), 0);
    }
}
