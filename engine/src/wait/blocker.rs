//! Where a waiting thread sleeps, and how others wake it.

use core::ptr;
use core::sync::atomic::{AtomicI32, Ordering};
use core::time::Duration;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;

use libc::{c_int, epoll_event, sigset_t};

use super::protocol::{BlockResult, Platform};
use super::word::SleepWord;
use super::{SignalGuard, monotonic_nanos, raw};
use crate::error::{ControlError, last_errno};

/// A place to sleep for one thread at a time, and its alarm clock: a descriptor
/// (`eventfd`) that wakers write to, but only if somebody sleeps.
///
/// What is slept on stays the same from sleep to sleep, so the kernel is told
/// once (`epoll`): a sleep on two descriptors costs no more than a `poll` of one.
#[derive(Debug)]
pub struct Blocker {
    word: SleepWord,
    alarm: OwnedFd,
    /// Watches the alarm, and the channel once there is one.
    watch: OwnedFd,
    /// The channel that is watched, or [`NONE`].
    channel: AtomicI32,
}

/// A sleep that [`Blocker::prepare`] has prepared, as plain data.
///
/// It is `epoll_pwait2` of [`Self::descriptor`] with room for
/// [`Sleep::EVENTS`] events.
#[derive(Clone, Copy)]
pub struct Sleep {
    watch: c_int,
    timeout: Option<libc::timespec>,
    mask: sigset_t,
}

/// How a [`Sleep`] ended, as plain data.
#[derive(Clone, Copy)]
pub struct Slept {
    found: c_int,
    errno: c_int,
    events: [epoll_event; Sleep::EVENTS],
}

impl Sleep {
    /// How many events a sleep tells of at most.
    pub const EVENTS: usize = 2;

    /// The epoll descriptor to sleep on.
    #[must_use]
    pub fn descriptor(&self) -> c_int {
        self.watch
    }

    /// The time that the sleep takes at most; without end if there is none.
    #[must_use]
    pub fn timeout(&self) -> Option<&libc::timespec> {
        self.timeout.as_ref()
    }

    /// The signals to hold back during the sleep.
    #[must_use]
    pub fn mask(&self) -> &sigset_t {
        &self.mask
    }

    /// Sleeps. No cancellation point.
    #[must_use]
    pub fn sleep(&self) -> Slept {
        let mut events = [epoll_event { events: 0, u64: 0 }; Self::EVENTS];
        let found = match &self.timeout {
            None => raw::epoll(self.watch, &mut events, true, Some(&self.mask)),
            Some(timeout) => {
                let found = raw::epoll_for(self.watch, &mut events, timeout, &self.mask);
                // A container may forbid what it does not know.
                match found < 0 && matches!(last_errno(), libc::ENOSYS | libc::EPERM) {
                    true => self.sleep_by_poll(&mut events, timeout),
                    false => found,
                }
            }
        };
        Slept::new(found, last_errno(), events)
    }

    /// The same without `epoll_pwait2`: one system call to sleep, one to know why
    /// it ended.
    fn sleep_by_poll(
        &self,
        events: &mut [epoll_event; Self::EVENTS],
        timeout: &libc::timespec,
    ) -> c_int {
        match raw::poll(Some(self.watch), timeout, &self.mask) {
            1.. => raw::epoll(self.watch, events, false, None),
            none => none,
        }
    }

    /// A sleep as on a kernel before 5.11. Answers what came.
    #[cfg(test)]
    pub(super) fn old_sleep_for_test(&self) -> Result<usize, i32> {
        let mut events = [epoll_event { events: 0, u64: 0 }; Self::EVENTS];
        let timeout = self.timeout.expect("a time");
        let found = self.sleep_by_poll(&mut events, &timeout);
        usize::try_from(found).map_err(|_| last_errno())
    }
}

impl Slept {
    /// What `epoll_pwait2` returned, `errno` after it, and the events that it
    /// wrote.
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
/// What an event of [`Blocker::watch`] says came.
const ALARM: u64 = 0;
const CHANNEL: u64 = 1;

impl Blocker {
    /// Creates one.
    ///
    /// # Errors
    /// Out of file descriptors: it takes two.
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
            channel: AtomicI32::new(NONE),
        };
        blocker.add(blocker.alarm.as_raw_fd(), ALARM, libc::EPOLLIN)?;
        Ok(blocker)
    }

    /// Has a descriptor watched.
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

    /// Has the channel watched, the first time that there is one: for what comes
    /// new, which saves the kernel a second look at what has just been told.
    #[cold]
    #[inline(never)]
    fn watch_channel(&self, channel: c_int) -> Result<(), ControlError> {
        let before = self.channel.swap(channel, Ordering::Relaxed);
        if before != NONE {
            // SAFETY: descriptors; the event is not read. It may be closed,
            // which ended the watch too.
            unsafe {
                libc::epoll_ctl(
                    self.watch.as_raw_fd(),
                    libc::EPOLL_CTL_DEL,
                    before,
                    ptr::null_mut(),
                )
            };
        }
        if channel == NONE {
            return Ok(());
        }
        self.add(channel, CHANNEL, libc::EPOLLIN | libc::EPOLLET)
            .inspect_err(|_| self.channel.store(NONE, Ordering::Relaxed))
    }

    /// What the channel has told of is told anew by the next sleep: for who could
    /// not take it. A device that is gone says so once, and everybody who comes
    /// later is to hear of it.
    #[cold]
    pub fn watch_anew(&self) {
        // Nothing is added, so nothing fails.
        let _ = self.watch_channel(NONE);
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
        // Full it cannot be: only one write follows each announcement.
        while raw::write(self.alarm.as_raw_fd(), 1) < 0 && last_errno() == libc::EINTR {}
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

    /// Sleeps until the alarm rings, `channel` has something that no sleep here
    /// has told of before (or its other end is gone), `timeout` is over
    /// (`None`: never), or a signal that the caller's mask lets in was handled.
    /// Takes [`Self::announce`] back.
    ///
    /// A channel stays open as long as the blocker sleeps on it: what is watched
    /// is known by the number of its descriptor.
    ///
    /// # Errors
    /// The system failed.
    pub fn block(
        &self,
        channel: Option<BorrowedFd<'_>>,
        timeout: Option<Duration>,
        guard: &SignalGuard,
    ) -> Result<BlockResult, ControlError> {
        let sleep = self.prepare(channel, timeout, guard)?;
        self.woken(&sleep.sleep())
    }

    /// The part of [`Self::block`] before the sleep, for callers that sleep by
    /// themselves. What follows is [`Self::woken`] or [`Self::abandon`].
    ///
    /// # Errors
    /// The system failed. [`Self::announce`] is taken back.
    pub fn prepare(
        &self,
        channel: Option<BorrowedFd<'_>>,
        timeout: Option<Duration>,
        guard: &SignalGuard,
    ) -> Result<Sleep, ControlError> {
        let channel = channel.map_or(NONE, |channel| channel.as_raw_fd());
        if channel != self.channel.load(Ordering::Relaxed)
            && let Err(error) = self.watch_channel(channel)
        {
            self.retract();
            return Err(error);
        }
        Ok(Sleep {
            watch: self.watch.as_raw_fd(),
            timeout: timeout.map(timespec),
            mask: *guard.caller(),
        })
    }

    /// The part of [`Self::block`] after the sleep. Takes [`Self::announce`] back.
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
                    let error = ControlError::verbs("sleep until there is an event", errno);
                    (Err(error), 0)
                }
            },
        };
        // It may have been rung for this sleep, or late, for one before.
        let mut events = slept.events.iter().take(came);
        let rung = events.any(|event| event.u64 == ALARM);
        if self.word.retract() || rung {
            self.silence();
        }
        result
    }

    /// Takes [`Self::announce`] back after a sleep whose end the sleeper has not
    /// seen, since its thread is ending: the next sleep here is told of
    /// everything that may have ended this one.
    #[cold]
    pub fn abandon(&self) {
        self.word.retract();
        self.silence();
        self.watch_anew();
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
        // It does not block: EFD_NONBLOCK.
        raw::read(self.alarm.as_raw_fd());
    }
}

/// A new descriptor, which is nobody else's.
fn owned(fd: c_int, operation: &'static str) -> Result<OwnedFd, ControlError> {
    if fd < 0 {
        return Err(ControlError::last(operation));
    }
    // SAFETY: just created, and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
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
