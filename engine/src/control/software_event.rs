//! Events of a completion channel that the engine raises itself.
//!
//! The kernel raises an event for a completion of the device. A completion that the
//! verbs path makes (`path/verbs/flush.rs`) raises none, and a thread that sleeps
//! on the channel would miss it. On devices where that happens, the channel's
//! descriptor is an `epoll` descriptor over two others: that of the kernel's
//! channel, and an `eventfd` to which the engine writes.
//!
//! Decision: `docs/decisions/038-siw-quirks.md`

use core::sync::atomic::{AtomicBool, Ordering};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use libc::{c_int, epoll_event};

use crate::error::{ControlError, last_errno};
use crate::thread::CancellationDisabled;

/// The event source of the engine beside the kernel's, for one channel.
#[derive(Debug)]
pub(crate) struct SoftwareEvent {
    eventfd: OwnedFd,
    /// Whether `eventfd` is readable. Saves the system call of a read that would find nothing.
    /// Set after `eventfd` became readable, and cleared before it is read.
    is_raised: AtomicBool,
    /// The epoll descriptor of the kernel's channel and `eventfd`.
    epoll: OwnedFd,
}

const OPERATION: &str = "create a completion channel";

impl SoftwareEvent {
    /// Creates the event source for the channel with the descriptor `events`, which
    /// must stay open until this value is dropped.
    ///
    /// # Errors
    /// The process has too few file descriptors left: this takes two.
    pub(super) fn new(events: RawFd) -> Result<Self, ControlError> {
        // SAFETY: takes integers.
        let eventfd = owned(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
        // SAFETY: takes an integer.
        let epoll = owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        let software_event = Self {
            eventfd,
            is_raised: AtomicBool::new(false),
            epoll,
        };
        software_event.watch(events)?;
        software_event.watch(software_event.eventfd.as_raw_fd())?;
        Ok(software_event)
    }

    fn watch(&self, fd: RawFd) -> Result<(), ControlError> {
        let mut event = epoll_event {
            events: libc::EPOLLIN.cast_unsigned(),
            u64: 0,
        };
        let (set, add) = (self.epoll.as_raw_fd(), libc::EPOLL_CTL_ADD);
        // SAFETY: two descriptors, and an event that is only read.
        match unsafe { libc::epoll_ctl(set, add, fd, &raw mut event) } {
            0 => Ok(()),
            _ => Err(ControlError::last(OPERATION)),
        }
    }

    /// Returns the descriptor that is readable for either reason.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
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

fn owned(fd: c_int) -> Result<OwnedFd, ControlError> {
    if fd < 0 {
        return Err(ControlError::last(OPERATION));
    }
    // SAFETY: the descriptor was just created, and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait::{BlockResult, Blocker, SignalGuard};
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
    fn a_bell_is_readable_for_events_of_the_kernel_and_when_rung() {
        let (events, raise) = UnixStream::pair().expect("a channel");
        let software_event = SoftwareEvent::new(events.as_raw_fd()).expect("descriptors");
        assert!(!is_readable(&software_event) && !software_event.take());
        software_event.raise();
        software_event.raise();
        assert!(is_readable(&software_event) && software_event.take());
        assert!(
            !is_readable(&software_event) && !software_event.take(),
            "once"
        );
        (&raise).write_all(&[1]).expect("an event");
        assert!(is_readable(&software_event) && !software_event.take());
        (&events).read_exact(&mut [0]).expect("the event");
        assert!(!is_readable(&software_event));
    }

    /// Also if an earlier ring was not taken: a new ring ends a sleep.
    #[test]
    fn each_ring_wakes_a_sleeper() {
        let (events, _raise) = UnixStream::pair().expect("a channel");
        let software_event = SoftwareEvent::new(events.as_raw_fd()).expect("descriptors");
        let blocker = Blocker::new().expect("a blocker");
        let guard = SignalGuard::new();
        for _ in 0..2 {
            blocker.announce();
            std::thread::scope(|scope| {
                scope.spawn(|| software_event.raise());
                let time = Some(Duration::from_secs(20));
                let result = blocker.block(Some(software_event.fd()), time, &guard);
                assert_eq!(result.expect("slept"), BlockResult::Woken);
            });
        }
    }
}
