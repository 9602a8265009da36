//! The descriptors on which a waiting thread sleeps, and how other threads wake it.
//!
//! A sleep is one `ppoll` on up to three descriptors:
//!
//! | descriptor | becomes readable by | is read |
//! | --- | --- | --- |
//! | the alarm (`eventfd`) | [`Blocker::wake`], if a sleep is announced | after a sleep that it ended, or whose announcement a waker has read |
//! | the channel's events (kernel) | a completion after the arm | by [`Source::take_events`], once for each arm |
//! | the channel's software events (`eventfd`; siw) | a completion that the engine makes | by [`Source::take_events`], if a flag says that an event was raised |
//!
//! A descriptor that stays readable ends each sleep at once, so whatever makes one
//! readable must be read after the sleep: [`Source::take_events`] reads at least one
//! event, or fails. The descriptors of several channels are one to `ppoll`
//! ([`super::ChannelSet`]).
//!
//! Of the system calls that wait for descriptors and set a signal mask, only `ppoll`
//! and `pselect` end by a signal if and only if its handler runs. The kernel restarts
//! them if the process was stopped and continued, if a debugger has attached, or if the
//! signal is ignored; `epoll_pwait` fails then with EINTR.
//!
//! Decision: `docs/decisions/065-sleep-in-ppoll.md`
//!
//! [`Source::take_events`]: super::Source::take_events

use core::sync::atomic::AtomicU8;
use core::time::Duration;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;

use libc::{c_int, pollfd};

use super::halt::Halt;
use super::protocol::{BlockResult, Platform};
use super::word::SleepWord;
use super::{ChannelFds, SignalGuard, SignalMask, monotonic_nanos, raw};
use crate::error::{ControlError, last_errno};

/// A place to sleep for one thread at a time. Wakers write to its `eventfd`, but
/// only if a thread sleeps.
#[derive(Debug)]
pub struct Blocker {
    word: SleepWord,
    alarm: OwnedFd,
}

/// A prepared sleep ([`Blocker::prepare`]) as plain data: the arguments of `ppoll`.
#[derive(Clone, Copy)]
pub struct Sleep {
    /// The alarm, and the channel's descriptors. `ppoll` ignores those that are [`NONE`].
    fds: [pollfd; 3],
    timeout: Option<libc::timespec>,
    mask: SignalMask,
}

/// How a [`Sleep`] ended, as plain data.
#[derive(Clone, Copy, Debug)]
pub struct Slept {
    /// The number of readable descriptors, or the negative error number.
    found: c_int,
    /// The alarm is readable.
    rung: bool,
}

impl Sleep {
    /// Returns the arguments of `ppoll`: the descriptors, to which it writes, the
    /// timeout, if there is one, and the signal mask.
    #[must_use]
    pub fn arguments(&mut self) -> (&mut [pollfd], Option<&libc::timespec>, &SignalMask) {
        (&mut self.fds, self.timeout.as_ref(), &self.mask)
    }

    /// Sleeps. Not a cancellation point.
    #[must_use]
    pub fn sleep(mut self) -> Slept {
        let found = raw::poll(&mut self.fds, self.timeout, self.mask);
        self.slept(found)
    }

    /// Returns how the sleep ended. `found` is what `ppoll` returned with
    /// [`Self::arguments`], or the negative error number.
    #[must_use]
    pub fn slept(&self, found: c_int) -> Slept {
        Slept {
            found,
            rung: found > 0 && self.fds[0].revents != 0,
        }
    }
}

impl core::fmt::Debug for Sleep {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Sleep").finish_non_exhaustive()
    }
}

/// No descriptor.
const NONE: c_int = -1;

impl Blocker {
    /// Creates a blocker.
    ///
    /// # Errors
    /// The process has no file descriptor left; a blocker takes one.
    pub fn new() -> Result<Self, ControlError> {
        // SAFETY: takes integers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(ControlError::last("create a wake descriptor"));
        }
        Ok(Self {
            word: SleepWord::new(),
            // SAFETY: the descriptor was just created, and has no other owner.
            alarm: unsafe { OwnedFd::from_raw_fd(fd) },
        })
    }

    /// Wakes the thread that sleeps here or is about to, if there is one. Call this
    /// after the change that its poll looks for. May be called from any thread;
    /// without a sleeper it costs a fence and a load.
    #[inline]
    pub fn wake(&self) {
        if self.word.take() {
            self.ring();
        }
    }

    #[cold]
    #[inline(never)]
    fn ring(&self) {
        // The counter cannot overflow: at most one write follows each announcement.
        while raw::write(self.alarm.as_raw_fd(), 1) < 0 && last_errno() == libc::EINTR {}
    }

    /// Announces a sleep: from now on [`Self::wake`] writes a token. Poll once more
    /// after this call, then [`Self::block`].
    pub fn announce(&self) {
        self.word.announce();
    }

    /// Takes [`Self::announce`] back.
    pub fn retract(&self) {
        if self.word.retract() {
            // A waker has written its token, or is about to; in the second case the
            // next sleep ends early, once.
            self.take_token();
        }
    }

    /// Sleeps until a waker writes its token, `channel` has an event (or its other end
    /// is closed), `timeout` has passed (`None`: never), or a signal that the caller's
    /// mask allows was handled. Takes [`Self::announce`] back.
    ///
    /// # Errors
    /// The system failed.
    pub fn block(
        &self,
        channel: Option<ChannelFds<'_>>,
        timeout: Option<Duration>,
        guard: &SignalGuard,
    ) -> Result<BlockResult, ControlError> {
        self.woken(&self.prepare(channel, timeout, guard).sleep())
    }

    /// Does the part of [`Self::block`] before the sleep, for callers that sleep
    /// themselves while the channel stays open. [`Self::woken`] or [`Self::abandon`]
    /// must follow.
    #[must_use]
    pub fn prepare(
        &self,
        channel: Option<ChannelFds<'_>>,
        timeout: Option<Duration>,
        guard: &SignalGuard,
    ) -> Sleep {
        let software_event = channel.as_ref().and_then(|all| all.software_event);
        let fds = [
            self.alarm.as_raw_fd(),
            channel.map_or(NONE, |all| all.kernel.as_raw_fd()),
            software_event.map_or(NONE, |fd| fd.as_raw_fd()),
        ];
        Sleep {
            fds: fds.map(|fd| pollfd {
                fd,
                events: libc::POLLIN,
                revents: 0,
            }),
            timeout: timeout.map(timespec),
            mask: guard.caller(),
        }
    }

    /// Does the part of [`Self::block`] after the sleep. Takes [`Self::announce`]
    /// back.
    ///
    /// # Errors
    /// The system failed.
    pub fn woken(&self, slept: &Slept) -> Result<BlockResult, ControlError> {
        // The token may be for this sleep or, if late, for an earlier one.
        if self.word.retract() || slept.rung {
            self.take_token();
        }
        match slept.found {
            0 => Ok(BlockResult::TimedOut),
            1.. => Ok(BlockResult::Woken),
            error if error == -libc::EINTR => Ok(BlockResult::Signal),
            error => Err(ControlError::verbs("sleep until an event", -error)),
        }
    }

    /// Takes [`Self::announce`] back after a sleep whose result is unknown, because
    /// its thread is ending, or because a program slept on a descriptor
    /// ([`super::ChannelSet::with_alarm`]).
    #[cold]
    pub fn abandon(&self) {
        self.word.retract();
        self.take_token();
    }

    /// Returns the descriptor that wakers write to.
    pub(super) fn alarm(&self) -> BorrowedFd<'_> {
        self.alarm.as_fd()
    }

    /// Does the first half of [`Self::wake`], to simulate a slow waker.
    #[cfg(test)]
    pub(super) fn is_taken_for_test(&self) -> bool {
        self.word.take()
    }

    #[cfg(test)]
    pub(super) fn ring_for_test(&self) {
        self.ring();
    }

    /// Takes the token, if there is one.
    fn take_token(&self) {
        // Does not block: EFD_NONBLOCK.
        raw::read(self.alarm.as_raw_fd());
    }
}

/// Returns whether the host has more than one processor; queries the system once. The
/// thread's affinity does not matter, since the event may be produced on other
/// processors.
fn has_several_processors() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    // SAFETY: takes an integer. An error (-1) counts as several.
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

    fn is_multiprocessor(&self) -> bool {
        has_several_processors()
    }

    fn yield_now(&self) {
        std::thread::yield_now();
    }

    fn monitor(&self, byte: &AtomicU8) -> bool {
        Halt::of_processor().monitor(byte)
    }

    fn halt(&self) {
        Halt::of_processor().halt();
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
        channel: Option<ChannelFds<'_>>,
        timeout: Option<Duration>,
        guard: &SignalGuard,
    ) -> Result<BlockResult, ControlError> {
        Self::block(self, channel, timeout, guard)
    }

    fn retract(&self) {
        Self::retract(self);
    }
}
