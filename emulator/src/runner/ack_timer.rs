//! The timer that delays the wake-up of peers for acknowledgements.
//!
//! An ack is usually followed by another packet, such as the reply, and one
//! wake-up serves both. The reply may be sent by an application thread while
//! the NIC thread sleeps, so this is a separate timer and not the timeout of the
//! NIC thread's sleep. It keeps running from sleep to sleep, since starting and
//! stopping a timer costs more than a message in a virtual machine. When it
//! expires, the NIC thread wakes the peers that still have unread acks.

use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::hidden::HiddenFile;
use crate::spec::Nanos;

/// Maximum time in nanoseconds for which a sleeping peer is not woken for acks,
/// while this process's NIC thread sleeps too.
pub(super) const ACK_DELAY: Nanos = 100_000;

/// The timer. If no descriptor could be created, it never starts.
#[derive(Debug)]
pub(super) struct AckTimer {
    timer: Option<HiddenFile>,
    running: bool,
}

impl AckTimer {
    pub(super) fn new() -> Self {
        // SAFETY: timerfd_create(2) takes two integers.
        let fd = unsafe {
            libc::timerfd_create(
                libc::CLOCK_MONOTONIC,
                libc::TFD_CLOEXEC | libc::TFD_NONBLOCK,
            )
        };
        // SAFETY: the call above has just returned this descriptor to us.
        let timer = (fd >= 0).then(|| unsafe { HiddenFile::new(OwnedFd::from_raw_fd(fd)) });
        Self {
            timer,
            running: false,
        }
    }

    /// Returns a descriptor that is readable when the timer has expired, or -1,
    /// which `poll` ignores, if there is no timer.
    pub(super) fn raw_fd(&self) -> i32 {
        self.timer.as_ref().map_or(-1, |timer| timer.as_raw_fd())
    }

    /// Starts the timer unless it is running. Returns `false` if there is no timer.
    pub(super) fn start(&mut self) -> bool {
        if !self.running {
            self.running = self.arm();
        }
        self.running
    }

    /// Clears the expired timer.
    pub(super) fn clear(&mut self) {
        self.running = false;
        if let Some(mut timer) = self.timer.as_deref() {
            let _ = timer.read(&mut [0; 8]);
        }
    }

    fn arm(&self) -> bool {
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
                tv_nsec: ACK_DELAY as libc::c_long,
                ..zero
            },
        };
        // SAFETY: a timer descriptor, and a setting that lives through the
        // call; the old setting is not requested.
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

    fn readable(timer: &AckTimer, within: Duration) -> bool {
        let mut fd = libc::pollfd {
            fd: timer.raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one pollfd that lives through the call.
        unsafe { libc::poll(&raw mut fd, 1, within.as_millis() as i32) == 1 }
    }

    #[test]
    fn the_timer_expires_once_for_each_start() {
        let mut timer = AckTimer::new();
        for _ in 0..3 {
            let started = Instant::now();
            assert!(timer.start() && timer.start());
            assert!(readable(&timer, Duration::from_secs(5)));
            assert!(started.elapsed() >= Duration::from_nanos(ACK_DELAY));
            timer.clear();
            assert!(!readable(&timer, Duration::from_millis(2)));
        }
    }
}
