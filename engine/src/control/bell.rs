//! Events of a completion channel that the engine raises itself.
//!
//! The kernel raises an event for a completion of the device. A completion that the
//! verbs path makes (`path/verbs/flush.rs`) raises none, and a thread that sleeps
//! on the channel would miss it. On devices where that happens, a channel has a
//! bell: one `epoll` descriptor that is readable when the kernel has events, or
//! when the bell was rung (an `eventfd`).
//!
//! Decision: `docs/decisions/038-siw-quirks.md`

use core::sync::atomic::{AtomicBool, Ordering};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use libc::{c_int, epoll_event};

use crate::error::{ControlError, last_errno};
use crate::thread::CancellationHeld;

/// A bell, as described at the top of this file.
#[derive(Debug)]
pub(crate) struct Bell {
    rung: OwnedFd,
    /// `rung` is readable. Saves the system call of a read that would find nothing.
    /// Set after `rung` became readable, and cleared before it is read.
    is_rung: AtomicBool,
    both: OwnedFd,
}

const OPERATION: &str = "create a completion channel";

impl Bell {
    /// Creates a bell for the channel with the descriptor `events`, which must not
    /// be closed before the bell is dropped.
    ///
    /// # Errors
    /// The process has too few file descriptors left; a bell takes two.
    pub(super) fn new(events: RawFd) -> Result<Self, ControlError> {
        // SAFETY: takes integers.
        let rung = owned(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
        // SAFETY: takes an integer.
        let both = owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        let bell = Self {
            rung,
            is_rung: AtomicBool::new(false),
            both,
        };
        bell.watch(events)?;
        bell.watch(bell.rung.as_raw_fd())?;
        Ok(bell)
    }

    fn watch(&self, fd: RawFd) -> Result<(), ControlError> {
        let mut event = epoll_event {
            events: libc::EPOLLIN.cast_unsigned(),
            u64: 0,
        };
        let (set, add) = (self.both.as_raw_fd(), libc::EPOLL_CTL_ADD);
        // SAFETY: two descriptors, and an event that is only read.
        match unsafe { libc::epoll_ctl(set, add, fd, &raw mut event) } {
            0 => Ok(()),
            _ => Err(ControlError::last(OPERATION)),
        }
    }

    /// Returns the descriptor that is readable for either reason.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.both.as_fd()
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
    fn a_bell_is_readable_for_events_of_the_kernel_and_when_rung() {
        let (events, raise) = UnixStream::pair().expect("a channel");
        let bell = Bell::new(events.as_raw_fd()).expect("descriptors");
        assert!(!is_readable(&bell) && !bell.take());
        bell.ring();
        bell.ring();
        assert!(is_readable(&bell) && bell.take());
        assert!(!is_readable(&bell) && !bell.take(), "once");
        (&raise).write_all(&[1]).expect("an event");
        assert!(is_readable(&bell) && !bell.take());
        (&events).read_exact(&mut [0]).expect("the event");
        assert!(!is_readable(&bell));
    }

    /// Also if an earlier ring was not taken: a new ring ends a sleep.
    #[test]
    fn each_ring_wakes_a_sleeper() {
        let (events, _raise) = UnixStream::pair().expect("a channel");
        let bell = Bell::new(events.as_raw_fd()).expect("descriptors");
        let blocker = Blocker::new().expect("a blocker");
        let guard = SignalGuard::new();
        for _ in 0..2 {
            blocker.announce();
            std::thread::scope(|scope| {
                scope.spawn(|| bell.ring());
                let time = Some(Duration::from_secs(20));
                let result = blocker.block(Some(bell.fd()), time, &guard);
                assert_eq!(result.expect("slept"), BlockResult::Woken);
            });
        }
    }
}
