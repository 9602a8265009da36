//! Events of a completion channel that the engine raises itself.
//!
//! The kernel raises an event for a completion of the device. A completion that the
//! verbs path makes (`path/verbs/flush.rs`) raises none, and a thread that sleeps
//! on the channel would miss it. On devices where that happens, a channel has a
//! bell: a second descriptor, which is readable when the bell was rung
//! (`wait/blocker.rs` has how a thread sleeps on both).
//!
//! Decision: `docs/decisions/038-siw-quirks.md`

use core::sync::atomic::{AtomicBool, Ordering};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::error::{ControlError, last_errno};
use crate::thread::CancellationHeld;

/// A bell, as described at the top of this file.
#[derive(Debug)]
pub(crate) struct Bell {
    rung: OwnedFd,
    /// `rung` is readable. Saves the system call of a read that would find nothing.
    /// Set after `rung` became readable, and cleared before it is read.
    is_rung: AtomicBool,
}

impl Bell {
    /// Creates a bell.
    ///
    /// # Errors
    /// The process has no file descriptor left.
    pub(super) fn new() -> Result<Self, ControlError> {
        // SAFETY: takes integers.
        let rung = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if rung < 0 {
            return Err(ControlError::last("create a completion channel"));
        }
        Ok(Self {
            // SAFETY: the descriptor was just created, and has no other owner.
            rung: unsafe { OwnedFd::from_raw_fd(rung) },
            is_rung: AtomicBool::new(false),
        })
    }

    /// Returns the descriptor.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.rung.as_fd()
    }

    /// Makes the descriptor readable until [`Self::take`].
    #[cold]
    pub(super) fn ring(&self) {
        let _held = CancellationHeld::new();
        let one = 1u64;
        loop {
            // SAFETY: eight readable bytes. The counter cannot overflow: that would
            // take 2^64 - 1 calls.
            let written = unsafe { libc::write(self.rung.as_raw_fd(), (&raw const one).cast(), 8) };
            if written >= 0 || last_errno() != libc::EINTR {
                break;
            }
        }
        self.is_rung.store(true, Ordering::Release);
    }

    /// Returns whether the bell was rung since the last call. Does not block. A
    /// call during a ring may miss it; the descriptor then stays readable, and the
    /// next call finds it.
    #[inline]
    pub(super) fn take(&self) -> bool {
        self.is_rung.load(Ordering::Relaxed) && self.take_rung()
    }

    #[cold]
    fn take_rung(&self) -> bool {
        if !self.is_rung.swap(false, Ordering::Acquire) {
            return false;
        }
        let _held = CancellationHeld::new();
        let mut count = 0u64;
        // SAFETY: eight writable bytes.
        unsafe { libc::read(self.rung.as_raw_fd(), (&raw mut count).cast(), 8) == 8 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait::{BlockResult, Blocker, ChannelFds, SignalGuard};
    use core::time::Duration;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    fn is_readable(bell: &Bell) -> bool {
        let mut watched = libc::pollfd {
            fd: bell.fd().as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one descriptor to write to.
        unsafe { libc::poll(&raw mut watched, 1, 0) == 1 }
    }

    #[test]
    fn a_bell_is_readable_from_a_ring_until_it_is_taken() {
        let bell = Bell::new().expect("a descriptor");
        assert!(!is_readable(&bell) && !bell.take());
        bell.ring();
        bell.ring();
        assert!(is_readable(&bell) && bell.take());
        assert!(!is_readable(&bell) && !bell.take(), "once");
    }

    /// Also if an earlier ring or event was not taken: a new one ends a sleep.
    #[test]
    fn each_ring_and_each_event_of_the_kernel_wakes_a_sleeper() {
        let (events, raise) = UnixStream::pair().expect("a channel");
        let bell = Bell::new().expect("a descriptor");
        let channel = ChannelFds {
            kernel: events.as_fd(),
            bell: Some(bell.fd()),
        };
        let blocker = Blocker::new().expect("a blocker");
        let guard = SignalGuard::new();
        for round in 0..4 {
            blocker.announce();
            std::thread::scope(|scope| {
                scope.spawn(|| match round % 2 {
                    0 => bell.ring(),
                    _ => (&raise).write_all(&[1]).expect("an event"),
                });
                let time = Some(Duration::from_secs(20));
                let result = blocker.block(Some(channel), time, &guard);
                assert_eq!(result.expect("slept"), BlockResult::Woken);
            });
        }
        blocker.announce();
        let result = blocker.block(Some(channel), Some(Duration::from_millis(1)), &guard);
        assert_eq!(result.expect("slept"), BlockResult::TimedOut, "once each");
    }
}
