//! Where a waiting thread sleeps, and how others wake it.

use core::ptr;
use core::time::Duration;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;

use super::protocol::{BlockResult, Platform};
use super::word::SleepWord;
use super::{SignalGuard, monotonic_nanos};
use crate::error::{ControlError, last_errno};

/// A place to sleep for one thread at a time, and its alarm clock: a descriptor
/// (`eventfd`) that wakers write to, but only if somebody sleeps.
#[derive(Debug)]
pub struct Blocker {
    word: SleepWord,
    alarm: OwnedFd,
}

impl Blocker {
    /// Creates one.
    ///
    /// # Errors
    /// Out of file descriptors.
    pub fn new() -> Result<Self, ControlError> {
        // SAFETY: takes integers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(ControlError::last("create a wake descriptor"));
        }
        Ok(Self {
            word: SleepWord::new(),
            // SAFETY: just created, and nobody else's.
            alarm: unsafe { OwnedFd::from_raw_fd(fd) },
        })
    }

    /// Wakes the thread that sleeps here, or is about to, if there is one. To be
    /// called after what it waits for was made visible to its poll. Any thread;
    /// without a sleeper a fence and a load.
    #[inline]
    pub fn wake(&self) {
        if self.word.take() {
            self.ring();
        }
    }

    #[cold]
    #[inline(never)]
    fn ring(&self) {
        let one = 1u64;
        loop {
            // SAFETY: eight readable bytes.
            let written =
                unsafe { libc::write(self.alarm.as_raw_fd(), (&raw const one).cast(), 8) };
            // Full it cannot be: only one write follows each announcement.
            if written >= 0 || last_errno() != libc::EINTR {
                return;
            }
        }
    }

    /// "I am going to sleep": from here on [`Self::wake`] rings. Poll once more
    /// after this, then [`Self::block`].
    pub fn announce(&self) {
        self.word.announce();
    }

    /// "I am not, after all": takes [`Self::announce`] back.
    pub fn retract(&self) {
        if self.word.retract() {
            // A waker has rung; or will in a moment, and the next sleep is
            // short, once.
            self.silence();
        }
    }

    /// Sleeps until the alarm rings, `channel` is readable, `timeout` is over
    /// (`None`: never), or a signal that the caller's mask lets in was handled.
    /// Takes [`Self::announce`] back.
    ///
    /// # Errors
    /// The system failed.
    pub fn block(
        &self,
        channel: Option<BorrowedFd<'_>>,
        timeout: Option<Duration>,
        guard: &SignalGuard,
    ) -> Result<BlockResult, ControlError> {
        let watch = |fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        // A negative descriptor is passed over.
        let channel = channel.map_or(-1, |channel| channel.as_raw_fd());
        let mut fds = [watch(self.alarm.as_raw_fd()), watch(channel)];
        let timeout = timeout.map(timespec);
        let timeout = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
        // SAFETY: two descriptors to write to, a timeout or none, and a mask.
        let found = unsafe { libc::ppoll(fds.as_mut_ptr(), 2, timeout, guard.caller()) };
        let result = match found {
            0 => Ok(BlockResult::TimedOut),
            1.. => Ok(BlockResult::Woken),
            _ => match last_errno() {
                libc::EINTR => Ok(BlockResult::Signal),
                errno => Err(ControlError::verbs("sleep until there is an event", errno)),
            },
        };
        // It may have been rung for this sleep, or late, for one before.
        if self.word.retract() || fds[0].revents != 0 {
            self.silence();
        }
        result
    }

    /// The two halves of [`Self::wake`], for a waker that is slow.
    #[cfg(test)]
    pub(super) fn is_taken_for_test(&self) -> bool {
        self.word.take()
    }

    #[cfg(test)]
    pub(super) fn ring_for_test(&self) {
        self.ring();
    }

    /// Forgets that the alarm rang.
    fn silence(&self) {
        let mut rung = 0u64;
        // SAFETY: eight writable bytes. It does not block: EFD_NONBLOCK.
        unsafe { libc::read(self.alarm.as_raw_fd(), (&raw mut rung).cast(), 8) };
    }
}

/// Whether the host has more than one processor: asked once. A thread's own mask
/// does not count; what is waited for may run where this thread may not.
fn has_several_processors() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    // SAFETY: takes a number. An error (-1) counts as several.
    *ANSWER.get_or_init(|| unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) } != 1)
}

fn timespec(duration: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: libc::time_t::try_from(duration.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}

impl Platform for Blocker {
    type Guard = SignalGuard;

    fn now(&self) -> u64 {
        monotonic_nanos()
    }

    fn others_run(&self) -> bool {
        has_several_processors()
    }

    fn give_way(&self) {
        std::thread::yield_now();
    }

    fn guard(&self) -> SignalGuard {
        SignalGuard::new()
    }

    fn interrupted(&self, guard: &SignalGuard) -> bool {
        guard.interrupted()
    }

    fn announce(&self) {
        Self::announce(self);
    }

    fn block(
        &self,
        channel: Option<BorrowedFd<'_>>,
        timeout: Option<Duration>,
        guard: &SignalGuard,
    ) -> Result<BlockResult, ControlError> {
        Self::block(self, channel, timeout, guard)
    }

    fn retract(&self) {
        Self::retract(self);
    }
}
