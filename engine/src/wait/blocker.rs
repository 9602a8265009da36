//! Where a waiting thread sleeps, and how others wake it.

use core::ptr;
use core::sync::atomic::{AtomicI32, Ordering};
use core::time::Duration;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;

use libc::{c_int, c_long, epoll_event};

use super::protocol::{BlockResult, Platform};
use super::word::SleepWord;
use super::{SignalGuard, monotonic_nanos};
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
        let channel = channel.map_or(NONE, |channel| channel.as_raw_fd());
        if channel != self.channel.load(Ordering::Relaxed)
            && let Err(error) = self.watch_channel(channel)
        {
            self.retract();
            return Err(error);
        }
        let mut events = [epoll_event { events: 0, u64: 0 }; 2];
        let found = match timeout {
            None => self.sleep(&mut events, guard),
            Some(timeout) => self.sleep_for(&mut events, timeout, guard),
        };
        let (result, came) = match usize::try_from(found) {
            Ok(0) => (Ok(BlockResult::TimedOut), 0),
            Ok(came) => (Ok(BlockResult::Woken), came),
            Err(_) => match last_errno() {
                libc::EINTR => (Ok(BlockResult::Signal), 0),
                errno => {
                    let error = ControlError::verbs("sleep until there is an event", errno);
                    (Err(error), 0)
                }
            },
        };
        // It may have been rung for this sleep, or late, for one before.
        let rung = events[..came].iter().any(|event| event.u64 == ALARM);
        if self.word.retract() || rung {
            self.silence();
        }
        result
    }

    /// As `epoll_pwait`, without end.
    fn sleep(&self, events: &mut [epoll_event; 2], guard: &SignalGuard) -> c_int {
        // SAFETY: a descriptor, two events to write to, and a mask.
        unsafe {
            libc::epoll_pwait(
                self.watch.as_raw_fd(),
                events.as_mut_ptr(),
                2,
                -1,
                guard.caller(),
            )
        }
    }

    /// As `epoll_pwait2`, which Linux has since 5.11.
    fn sleep_for(
        &self,
        events: &mut [epoll_event; 2],
        timeout: Duration,
        guard: &SignalGuard,
    ) -> c_int {
        /// Bytes of the kernel's set of signals: `_NSIG` (64) bits.
        const MASK_BYTES: c_long = 8;
        let timeout = timespec(timeout);
        let watch = self.watch.as_raw_fd();
        // SAFETY: a descriptor, two events to write to, a timeout and a mask that
        // are read; the mask begins with the kernel's.
        let found = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                c_long::from(watch),
                events.as_mut_ptr(),
                2 as c_long,
                &raw const timeout,
                guard.caller(),
                MASK_BYTES,
            )
        };
        // A container may forbid what it does not know.
        if found >= 0 || !matches!(last_errno(), libc::ENOSYS | libc::EPERM) {
            // Two at most, or -1.
            return found as c_int;
        }
        self.sleep_by_poll(events, &timeout, guard)
    }

    /// The same without that system call: one to sleep, one to know why it ended.
    fn sleep_by_poll(
        &self,
        events: &mut [epoll_event; 2],
        timeout: &libc::timespec,
        guard: &SignalGuard,
    ) -> c_int {
        let watch = self.watch.as_raw_fd();
        let mut watched = libc::pollfd {
            fd: watch,
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: a descriptor to write to, a timeout, and a mask; then two
        // events to write to.
        unsafe {
            match libc::ppoll(&raw mut watched, 1, timeout, guard.caller()) {
                1.. => libc::epoll_wait(watch, events.as_mut_ptr(), 2, 0),
                none => none,
            }
        }
    }

    /// A sleep as on a kernel before 5.11. Answers what came.
    #[cfg(test)]
    pub(super) fn old_sleep_for_test(
        &self,
        timeout: Duration,
        guard: &SignalGuard,
    ) -> Result<usize, i32> {
        let mut events = [epoll_event { events: 0, u64: 0 }; 2];
        let found = self.sleep_by_poll(&mut events, &timespec(timeout), guard);
        usize::try_from(found).map_err(|_| last_errno())
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
