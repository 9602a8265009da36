//! The timer of acknowledgements that peers were not woken for.
//!
//! What follows them, an answer say, mostly comes soon and wakes once for
//! both. It may come from an application's thread while the NIC thread
//! sleeps. So this is a timer beside the NIC thread's sleep and not its
//! length: it runs on from sleep to sleep, since starting and stopping a timer
//! costs more than a message in a virtual machine, and at its end looks
//! whether somebody still has to be woken.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd};

use crate::nic::Nanos;

/// How long a peer may sleep on acknowledgements, if this process' NIC thread
/// sleeps too.
pub(super) const ACKNOWLEDGE_DELAY: Nanos = 100_000;

/// The timer. Without a descriptor for it, it cannot be started.
#[derive(Debug)]
pub(super) struct Patience {
    timer: Option<File>,
    running: bool,
}

impl Patience {
    pub(super) fn new() -> Self {
        // SAFETY: timerfd_create(2) takes two integers.
        let fd = unsafe {
            libc::timerfd_create(
                libc::CLOCK_MONOTONIC,
                libc::TFD_CLOEXEC | libc::TFD_NONBLOCK,
            )
        };
        // SAFETY: the call above has just returned this descriptor to us.
        let timer = (fd >= 0).then(|| unsafe { File::from_raw_fd(fd) });
        Self {
            timer,
            running: false,
        }
    }

    /// Readable when the patience is over; -1, which `poll` ignores, if there
    /// is no timer.
    pub(super) fn raw_fd(&self) -> i32 {
        self.timer.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }

    /// Somebody is being waited with: the timer runs. `false` if there is none.
    pub(super) fn begin(&mut self) -> bool {
        if !self.running {
            self.running = self.start();
        }
        self.running
    }

    /// The descriptor was readable: whoever is waited with is woken now.
    pub(super) fn over(&mut self) {
        self.running = false;
        if let Some(timer) = &mut self.timer {
            let _ = timer.read(&mut [0; 8]);
        }
    }

    fn start(&self) -> bool {
        let Some(timer) = &self.timer else {
            return false;
        };
        let zero = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let setting = libc::itimerspec {
            it_interval: zero,
            it_value: libc::timespec {
                tv_nsec: ACKNOWLEDGE_DELAY as libc::c_long,
                ..zero
            },
        };
        // SAFETY: a timer descriptor, and a setting that lives through the
        // call; the old one is not asked for.
        let set = unsafe {
            libc::timerfd_settime(
                timer.as_raw_fd(),
                0,
                &raw const setting,
                std::ptr::null_mut(),
            )
        };
        set == 0
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    fn readable(patience: &Patience, within: Duration) -> bool {
        let mut fd = libc::pollfd {
            fd: patience.raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one pollfd that lives through the call.
        unsafe { libc::poll(&raw mut fd, 1, within.as_millis() as i32) == 1 }
    }

    #[test]
    fn patience_runs_out_once_each_time_it_begins() {
        let mut patience = Patience::new();
        for _ in 0..3 {
            let begun = Instant::now();
            assert!(patience.begin() && patience.begin());
            assert!(readable(&patience, Duration::from_secs(5)));
            assert!(begun.elapsed() >= Duration::from_nanos(ACKNOWLEDGE_DELAY));
            patience.over();
            assert!(!readable(&patience, Duration::from_millis(2)));
        }
    }
}
