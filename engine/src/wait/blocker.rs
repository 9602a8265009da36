//! The descriptors on which a waiting thread sleeps, and how other threads wake it.
//!
//! A sleep is one `epoll_pwait` on up to three descriptors:
//!
//! | descriptor | becomes readable by | is read |
//! | --- | --- | --- |
//! | the alarm (`eventfd`) | [`Blocker::wake`], if a sleep is announced | after a sleep that it ended, or whose announcement a waker has read |
//! | the channel's events (kernel) | a completion after the arm | by [`Source::take_events`], once for each arm |
//! | the channel's software events (`eventfd`; siw) | a completion that the engine makes | by [`Source::take_events`], if a flag says that an event was raised |
//!
//! All of them are registered in one epoll descriptor, once: a sleep on three
//! descriptors costs no more than a sleep on one. The two of the channel are
//! edge-triggered, so that only new events end a sleep, and the kernel does not look
//! at an event again that it has reported. An epoll descriptor among them would cost
//! a second wake-up path and a second scan for each sleep; only a
//! [`super::ChannelSet`] needs that.
//!
//! [`Source::take_events`]: super::Source::take_events

use core::ptr;
use core::sync::atomic::{AtomicI32, Ordering};
use core::time::Duration;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;

use libc::{c_int, epoll_event};

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
    /// The epoll descriptor of the alarm and, once there is one, of the channel.
    watch: OwnedFd,
    /// The registered descriptors of the channel: the kernel's and that of the software
    /// events, each [`NONE`] if there is none.
    channel: [AtomicI32; 2],
}

/// A prepared sleep ([`Blocker::prepare`]) as plain data.
///
/// The sleep is `epoll_pwait2` on [`Self::descriptor`] with room for
/// [`Sleep::EVENTS`] events.
#[derive(Clone, Copy)]
pub struct Sleep {
    watch: c_int,
    timeout: Option<libc::timespec>,
    mask: SignalMask,
}

/// How a [`Sleep`] ended, as plain data.
#[derive(Clone, Copy)]
pub struct Slept {
    found: c_int,
    errno: c_int,
    events: [epoll_event; Sleep::EVENTS],
}

impl Sleep {
    /// The most events that a sleep returns.
    pub const EVENTS: usize = 3;

    /// Returns the epoll descriptor to sleep on.
    #[must_use]
    pub fn descriptor(&self) -> c_int {
        self.watch
    }

    /// Returns the timeout of the sleep, if it has one.
    #[must_use]
    pub fn timeout(&self) -> Option<&libc::timespec> {
        self.timeout.as_ref()
    }

    /// Returns the signal mask of the sleep.
    #[must_use]
    pub fn mask(&self) -> SignalMask {
        self.mask
    }

    /// Sleeps. Not a cancellation point.
    #[must_use]
    pub fn sleep(&self) -> Slept {
        let mut events = [epoll_event { events: 0, u64: 0 }; Self::EVENTS];
        let found = match &self.timeout {
            None => raw::epoll(self.watch, &mut events, true, Some(self.mask)),
            Some(timeout) => {
                let found = raw::epoll_for(self.watch, &mut events, timeout, self.mask);
                // A container may forbid system calls that it does not know.
                match found < 0 && matches!(last_errno(), libc::ENOSYS | libc::EPERM) {
                    true => self.sleep_by_poll(&mut events, timeout),
                    false => found,
                }
            }
        };
        Slept::new(found, last_errno(), events)
    }

    /// Sleeps without `epoll_pwait2`: one system call sleeps, another returns the
    /// events that ended the sleep.
    fn sleep_by_poll(
        &self,
        events: &mut [epoll_event; Self::EVENTS],
        timeout: &libc::timespec,
    ) -> c_int {
        match raw::poll(Some(self.watch), timeout, self.mask) {
            1.. => raw::epoll(self.watch, events, false, None),
            none => none,
        }
    }

    /// Sleeps as on a kernel before 5.11. Returns the number of events.
    #[cfg(test)]
    pub(super) fn old_sleep_for_test(&self) -> Result<usize, i32> {
        let mut events = [epoll_event { events: 0, u64: 0 }; Self::EVENTS];
        let timeout = self.timeout.expect("a time");
        let found = self.sleep_by_poll(&mut events, &timeout);
        usize::try_from(found).map_err(|_| last_errno())
    }
}

impl Slept {
    /// Makes the result from what `epoll_pwait2` returned, `errno` after it, and
    /// the events that it wrote.
    #[must_use]
    pub fn new(found: c_int, errno: c_int, events: [epoll_event; Sleep::EVENTS]) -> Self {
        Self {
            found,
            errno,
            events,
        }
    }
}

impl core::fmt::Debug for Sleep {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Sleep").finish_non_exhaustive()
    }
}

impl core::fmt::Debug for Slept {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Slept").finish_non_exhaustive()
    }
}

/// No descriptor.
const NONE: c_int = -1;
/// The name of the alarm in the events of [`Blocker::watch`].
const ALARM: u64 = 0;
const CHANNEL: u64 = 1;

impl Blocker {
    /// Creates a blocker.
    ///
    /// # Errors
    /// The process has too few file descriptors left; a blocker takes two.
    pub fn new() -> Result<Self, ControlError> {
        const OPERATION: &str = "create a wake descriptor";
        // SAFETY: takes integers.
        let alarm = owned(
            unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) },
            OPERATION,
        )?;
        // SAFETY: takes an integer.
        let watch = owned(
            unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) },
            OPERATION,
        )?;
        let blocker = Self {
            word: SleepWord::new(),
            alarm,
            watch,
            channel: [const { AtomicI32::new(NONE) }; 2],
        };
        blocker.add(blocker.alarm.as_raw_fd(), ALARM, libc::EPOLLIN)?;
        Ok(blocker)
    }

    /// Registers a descriptor.
    fn add(&self, fd: c_int, name: u64, how: c_int) -> Result<(), ControlError> {
        let mut event = epoll_event {
            events: how.cast_unsigned(),
            u64: name,
        };
        // SAFETY: two descriptors and an event that is read.
        match unsafe {
            libc::epoll_ctl(
                self.watch.as_raw_fd(),
                libc::EPOLL_CTL_ADD,
                fd,
                &raw mut event,
            )
        } {
            0 => Ok(()),
            _ => Err(ControlError::last("watch for events")),
        }
    }

    /// Registers the channel, the first time that there is one.
    #[cold]
    #[inline(never)]
    fn watch_channel(&self, fds: [c_int; 2]) -> Result<(), ControlError> {
        self.reset_channel();
        for (registered, fd) in self.channel.iter().zip(fds) {
            if fd != NONE {
                self.add(fd, CHANNEL, libc::EPOLLIN | libc::EPOLLET)
                    .inspect_err(|_| self.reset_channel())?;
                registered.store(fd, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// Makes the next sleep report the channel's events again, for a caller that
    /// could not take them. A removed device raises one event only, which every
    /// later wait must find.
    #[cold]
    pub fn reset_channel(&self) {
        for registered in &self.channel {
            let before = registered.swap(NONE, Ordering::Relaxed);
            if before != NONE {
                // SAFETY: descriptors; the event is not read. The old channel may be
                // closed, which has unregistered it.
                unsafe {
                    libc::epoll_ctl(
                        self.watch.as_raw_fd(),
                        libc::EPOLL_CTL_DEL,
                        before,
                        ptr::null_mut(),
                    )
                };
            }
        }
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

    /// Sleeps until a waker writes its token, `channel` has an event that no
    /// earlier sleep here has reported (or its other end is closed), `timeout` has
    /// passed (`None`: never), or a signal that the caller's mask allows was
    /// handled. Takes [`Self::announce`] back.
    ///
    /// The channel must stay open while the blocker sleeps on it: a channel is
    /// identified by the number of its descriptor.
    ///
    /// # Errors
    /// The system failed.
    pub fn block(
        &self,
        channel: Option<ChannelFds<'_>>,
        timeout: Option<Duration>,
        guard: &SignalGuard,
    ) -> Result<BlockResult, ControlError> {
        let sleep = self.prepare(channel, timeout, guard)?;
        self.woken(&sleep.sleep())
    }

    /// Does the part of [`Self::block`] before the sleep, for callers that sleep
    /// themselves. [`Self::woken`] or [`Self::abandon`] must follow.
    ///
    /// # Errors
    /// The system failed. [`Self::announce`] is taken back.
    pub fn prepare(
        &self,
        channel: Option<ChannelFds<'_>>,
        timeout: Option<Duration>,
        guard: &SignalGuard,
    ) -> Result<Sleep, ControlError> {
        let fds = match &channel {
            Some(channel) => [Some(&channel.kernel), channel.software_event.as_ref()],
            None => [None; 2],
        };
        let fds = fds.map(|fd| fd.map_or(NONE, AsRawFd::as_raw_fd));
        if fds != self.channel.each_ref().map(|fd| fd.load(Ordering::Relaxed))
            && let Err(error) = self.watch_channel(fds)
        {
            self.retract();
            return Err(error);
        }
        Ok(Sleep {
            watch: self.watch.as_raw_fd(),
            timeout: timeout.map(timespec),
            mask: guard.caller(),
        })
    }

    /// Does the part of [`Self::block`] after the sleep. Takes [`Self::announce`]
    /// back.
    ///
    /// # Errors
    /// The system failed.
    pub fn woken(&self, slept: &Slept) -> Result<BlockResult, ControlError> {
        let (result, came) = match usize::try_from(slept.found) {
            Ok(0) => (Ok(BlockResult::TimedOut), 0),
            Ok(came) => (Ok(BlockResult::Woken), came),
            Err(_) => match slept.errno {
                libc::EINTR => (Ok(BlockResult::Signal), 0),
                errno => {
                    let error = ControlError::verbs("sleep until an event", errno);
                    (Err(error), 0)
                }
            },
        };
        // The token may be for this sleep or, if late, for an earlier one.
        let mut events = slept.events.iter().take(came);
        let rung = events.any(|event| event.u64 == ALARM);
        if self.word.retract() || rung {
            self.take_token();
        }
        result
    }

    /// Takes [`Self::announce`] back after a sleep whose result is unknown because
    /// its thread is ending. The next sleep here reports everything that may have
    /// ended this one.
    #[cold]
    pub fn abandon(&self) {
        self.word.retract();
        self.take_token();
        self.reset_channel();
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

/// Takes ownership of a new descriptor.
fn owned(fd: c_int, operation: &'static str) -> Result<OwnedFd, ControlError> {
    if fd < 0 {
        return Err(ControlError::last(operation));
    }
    // SAFETY: the descriptor was just created, and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
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
