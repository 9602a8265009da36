//! Events of a completion channel that the engine raises itself.
//!
//! The kernel raises an event for a completion of the device. A completion that the
//! verbs path makes (`path/verbs/quirks.rs`) raises none, and a thread that sleeps
//! on the channel would miss it. On devices where that happens, a channel has a
//! second descriptor: an `eventfd` to which the engine writes (`wait/blocker.rs`
//! describes how a thread sleeps on both).

use core::sync::atomic::{AtomicBool, Ordering};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::error::{ControlError, last_errno};
use crate::thread::CancellationDisabled;

/// The event source of the engine beside the kernel's, for one channel.
#[derive(Debug)]
pub(crate) struct SoftwareEvent {
    eventfd: OwnedFd,
    /// Whether `eventfd` is readable. Saves the system call of a read that would find nothing.
    /// Set after `eventfd` became readable, and cleared before it is read.
    is_raised: AtomicBool,
}

impl SoftwareEvent {
    /// Creates the event source, with no event raised.
    ///
    /// # Errors
    /// The process has no file descriptor left.
    pub(super) fn new() -> Result<Self, ControlError> {
        // SAFETY: takes integers.
        let eventfd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if eventfd < 0 {
            return Err(ControlError::last("create a completion channel"));
        }
        Ok(Self {
            // SAFETY: the descriptor was just created, and has no other owner.
            eventfd: unsafe { OwnedFd::from_raw_fd(eventfd) },
            is_raised: AtomicBool::new(false),
        })
    }

    /// Returns the descriptor.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.eventfd.as_fd()
    }

    /// Raises an event: makes the descriptor readable until [`Self::take`].
    #[cold]
    pub(super) fn raise(&self) {
        let _held = CancellationDisabled::new();
        let one = 1u64;
        loop {
            // SAFETY: eight readable bytes. The counter cannot overflow: that would
            // take 2^64 - 1 calls.
            let written =
                unsafe { libc::write(self.eventfd.as_raw_fd(), (&raw const one).cast(), 8) };
            if written >= 0 || last_errno() != libc::EINTR {
                break;
            }
        }
        self.is_raised.store(true, Ordering::Release);
    }

    /// Returns whether an event was raised since the last call. Does not block. A call
    /// that runs at the same time as [`Self::raise`] may miss the event; the
    /// descriptor then stays readable, and the next call finds the event.
    #[inline]
    pub(super) fn take(&self) -> bool {
        self.is_raised.load(Ordering::Relaxed) && self.take_raised()
    }

    #[cold]
    fn take_raised(&self) -> bool {
        if !self.is_raised.swap(false, Ordering::Acquire) {
            return false;
        }
        let _held = CancellationDisabled::new();
        let mut count = 0u64;
        // SAFETY: eight writable bytes.
        unsafe { libc::read(self.eventfd.as_raw_fd(), (&raw mut count).cast(), 8) == 8 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait::{BlockResult, Blocker, ChannelFds, SignalGuard};
    use core::time::Duration;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    fn is_readable(software_event: &SoftwareEvent) -> bool {
        let mut watched = libc::pollfd {
            fd: software_event.fd().as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one descriptor to write to.
        unsafe { libc::poll(&raw mut watched, 1, 0) == 1 }
    }

    #[test]
    fn a_raised_event_makes_the_descriptor_readable_until_it_is_taken() {
        let software_event = SoftwareEvent::new().expect("a descriptor");
        assert!(!is_readable(&software_event) && !software_event.take());
        software_event.raise();
        software_event.raise();
        assert!(is_readable(&software_event) && software_event.take());
        assert!(
            !is_readable(&software_event) && !software_event.take(),
            "once"
        );
    }

    /// An event ends sleeps until it is taken.
    #[test]
    fn each_event_of_the_engine_and_of_the_kernel_wakes_a_sleeper() {
        let (events, raise) = UnixStream::pair().expect("a channel");
        let software_event = SoftwareEvent::new().expect("a descriptor");
        let channel = ChannelFds {
            kernel: events.as_fd(),
            software_event: Some(software_event.fd()),
        };
        let blocker = Blocker::new().expect("a blocker");
        let guard = SignalGuard::new();
        for round in 0..4 {
            blocker.announce();
            std::thread::scope(|scope| {
                scope.spawn(|| match round % 2 {
                    0 => software_event.raise(),
                    _ => (&raise).write_all(&[1]).expect("an event"),
                });
                for _ in 0..2 {
                    let time = Some(Duration::from_secs(20));
                    let result = blocker.block(Some(channel), time, &guard);
                    assert_eq!(result.expect("slept"), BlockResult::Woken);
                }
            });
            match round % 2 {
                0 => assert!(software_event.take()),
                _ => (&events).read_exact(&mut [0]).expect("the event"),
            }
            let result = blocker.block(Some(channel), Some(Duration::from_millis(1)), &guard);
            assert_eq!(result.expect("slept"), BlockResult::TimedOut);
        }
    }
}
