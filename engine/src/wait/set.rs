//! Several channels as one file descriptor.
//!
//! Decisions: `docs/decisions/065-sleep-in-ppoll.md`, `docs/decisions/080-cno-descriptor.md`

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libc::{c_int, epoll_event};

use super::{Blocker, ChannelFds, raw};
use crate::error::{ControlError, last_errno};

/// A set of channels (an `epoll` descriptor), readable while one of them has an event
/// that [`Self::readable`] has not returned. [`super::Blocker`] sleeps on it where a
/// wait is for events of several queues.
///
/// Any thread may add and remove channels, also while other threads sleep on the
/// set. The channels are registered edge-triggered: a channel whose events no thread
/// takes now, because its queue is in other use, ends no sleep on the set until it has
/// another event.
#[derive(Debug)]
pub struct ChannelSet(OwnedFd);

/// How channels are registered.
const EDGES: c_int = libc::EPOLLIN | libc::EPOLLET;

impl ChannelSet {
    /// Creates an empty set.
    ///
    /// # Errors
    /// The process has no file descriptor left; the set takes one.
    pub fn new() -> Result<Self, ControlError> {
        // SAFETY: takes an integer.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(ControlError::last("create a set of channels"));
        }
        // SAFETY: the descriptor was just created, and has no other owner.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Adds a channel under a name, which [`Self::readable`] returns. If the
    /// channel is in the set already, only its name is changed.
    ///
    /// # Errors
    /// The system refuses: it has no memory, or no `epoll` watches left for this
    /// user.
    pub fn add(&self, channel: ChannelFds<'_>, name: u64) -> Result<(), ControlError> {
        for fd in channel.iter() {
            let added = self.control(libc::EPOLL_CTL_ADD, fd, EDGES, name)
                || last_errno() == libc::EEXIST
                    && self.control(libc::EPOLL_CTL_MOD, fd, EDGES, name);
            if !added {
                let error = ControlError::last("watch a channel");
                self.remove(channel);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Removes a channel, if it is in the set.
    pub fn remove(&self, channel: ChannelFds<'_>) {
        for fd in channel.iter() {
            self.control(libc::EPOLL_CTL_DEL, fd, 0, 0);
        }
    }

    /// Returns a descriptor for programs that poll, which is readable while the set is,
    /// or while a waker has ended the sleep that `blocker` has announced.
    ///
    /// # Errors
    /// As for [`Self::new`] and [`Self::add`].
    pub fn with_alarm(&self, blocker: &Blocker) -> Result<OwnedFd, ControlError> {
        let both = Self::new()?;
        // Level-triggered: a program that reads the descriptor as a set takes nothing.
        for fd in [self.as_fd(), blocker.alarm()] {
            if !both.control(libc::EPOLL_CTL_ADD, fd, libc::EPOLLIN, 0) {
                return Err(ControlError::last("watch a set of channels"));
            }
        }
        Ok(both.0)
    }

    fn control(&self, operation: c_int, fd: BorrowedFd<'_>, events: c_int, name: u64) -> bool {
        let mut event = epoll_event {
            events: events.cast_unsigned(),
            u64: name,
        };
        // SAFETY: two descriptors, and an event that is only read.
        unsafe {
            libc::epoll_ctl(
                self.0.as_raw_fd(),
                operation,
                fd.as_raw_fd(),
                &raw mut event,
            ) == 0
        }
    }

    /// Returns the names of channels with events since they were returned last, to any
    /// thread: that of a channel with software events once for each of its descriptors,
    /// and at most as many as `events` has room for. Does not block.
    pub fn readable<'a>(&self, events: &'a mut [ChannelEvent]) -> impl Iterator<Item = u64> + 'a {
        let found = match events.len() {
            // The call requires room for at least one event.
            0 => 0,
            _ => raw::epoll_events(self.0.as_raw_fd(), ChannelEvent::inner(events)),
        };
        let found = usize::try_from(found).unwrap_or(0);
        events[..found].iter().map(|event| event.0.u64)
    }
}

impl AsFd for ChannelSet {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Room for one event that [`ChannelSet::readable`] returns.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct ChannelEvent(epoll_event);

impl ChannelEvent {
    fn inner(events: &mut [Self]) -> &mut [epoll_event] {
        // SAFETY: the type is transparent.
        unsafe { core::slice::from_raw_parts_mut(events.as_mut_ptr().cast(), events.len()) }
    }
}

impl Default for ChannelEvent {
    fn default() -> Self {
        Self(epoll_event { events: 0, u64: 0 })
    }
}

impl core::fmt::Debug for ChannelEvent {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("ChannelEvent").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait::{BlockResult, Blocker, SignalGuard};
    use core::time::Duration;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    fn names(set: &ChannelSet) -> Vec<u64> {
        let mut events = [ChannelEvent::default(); 8];
        let mut names: Vec<u64> = set.readable(&mut events).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn a_set_returns_the_names_of_readable_channels() {
        let set = ChannelSet::new().expect("a set");
        let pairs = [(); 3].map(|()| UnixStream::pair().expect("a channel"));
        for ((channel, _), name) in pairs.iter().zip(5..) {
            set.add(channel.as_fd().into(), name).expect("added");
        }
        assert!(names(&set).is_empty());
        for at in [0, 2] {
            (&pairs[at].1).write_all(&[1]).expect("an event");
        }
        assert_eq!(names(&set), [5, 7]);
        assert!(names(&set).is_empty(), "once for each event");
        (&pairs[0].1).write_all(&[1]).expect("an event");
        assert_eq!(names(&set), [5], "although one was left");
        (&pairs[0].1).write_all(&[1]).expect("an event");
        (&pairs[0].0).read_exact(&mut [0; 3]).expect("the events");
        assert!(names(&set).is_empty(), "they were taken");
        set.add(pairs[2].0.as_fd().into(), 9).expect("renamed");
        assert_eq!(names(&set), [9]);
        set.remove(pairs[2].0.as_fd().into());
        set.remove(pairs[2].0.as_fd().into());
        assert!(names(&set).is_empty());
        assert_eq!(set.readable(&mut []).count(), 0);
    }

    #[test]
    fn a_channel_with_software_events_has_two_descriptors_under_one_name() {
        let set = ChannelSet::new().expect("a set");
        let ends = [(); 2].map(|()| UnixStream::pair().expect("a descriptor"));
        let channel = ChannelFds {
            kernel: ends[0].0.as_fd(),
            software_event: Some(ends[1].0.as_fd()),
        };
        set.add(channel, 4).expect("added");
        for raised in [&[1][..], &[0], &[0, 1]] {
            for &end in raised {
                (&ends[end].1).write_all(&[1]).expect("an event");
            }
            assert_eq!(names(&set), vec![4; raised.len()]);
        }
        set.remove(channel);
        assert!(names(&set).is_empty());
    }

    /// The descriptor for programs, in a set of the program that is edge-triggered.
    #[test]
    fn a_descriptor_is_readable_while_the_set_is_or_the_alarm_was_raised() {
        let (set, blocker) = (ChannelSet::new().expect("a set"), Blocker::new());
        let blocker = blocker.expect("a blocker");
        let descriptor = set.with_alarm(&blocker).expect("a descriptor");
        let program = ChannelSet::new().expect("a set");
        program.add(descriptor.as_fd().into(), 7).expect("added");
        let (channel, raise) = UnixStream::pair().expect("a channel");
        set.add(channel.as_fd().into(), 1).expect("added");
        let is_readable = || {
            let mut fds = [libc::pollfd {
                fd: descriptor.as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            }];
            let no_time = libc::timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            raw::poll(&mut fds, Some(no_time), 0) == 1
        };
        blocker.wake();
        assert!(names(&program).is_empty(), "no sleep is announced");
        for _ in 0..2 {
            blocker.announce();
            blocker.wake();
            assert_eq!(names(&program), [7]);
            assert!(names(&program).is_empty() && is_readable());
            // A program that reads the descriptor as a set.
            let mut events = [epoll_event { events: 0, u64: 0 }; 4];
            for _ in 0..2 {
                assert_eq!(raw::epoll_events(descriptor.as_raw_fd(), &mut events), 1);
            }
            blocker.abandon();
            assert!(!is_readable());
            (&raise).write_all(&[1]).expect("an event");
            assert_eq!(names(&program), [7]);
            assert!(names(&program).is_empty() && is_readable());
            assert_eq!(names(&set), [1]);
            assert!(!is_readable() && names(&program).is_empty());
        }
    }

    /// An event ends sleeps until its name is returned, even if it stays in its
    /// channel; a later event ends them again.
    #[test]
    fn every_event_ends_sleeps_until_its_name_is_returned() {
        let set = ChannelSet::new().expect("a set");
        let (channel, raise) = UnixStream::pair().expect("a channel");
        set.add(channel.as_fd().into(), 1).expect("added");
        let blocker = Blocker::new().expect("a blocker");
        let guard = SignalGuard::new();
        let sleep = || {
            blocker.announce();
            let time = Some(Duration::from_millis(20));
            blocker
                .block(Some(set.as_fd().into()), time, &guard)
                .expect("slept")
        };
        assert_eq!(sleep(), BlockResult::TimedOut);
        for _ in 0..3 {
            (&raise).write_all(&[1]).expect("an event");
            assert_eq!([sleep(), sleep()], [BlockResult::Woken; 2]);
            assert_eq!(names(&set), [1]);
            assert_eq!(sleep(), BlockResult::TimedOut, "its name was returned");
        }
        // So does an event of a channel that is added during the sleep.
        let (late, raise_late) = UnixStream::pair().expect("a channel");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(5));
                set.add(late.as_fd().into(), 2).expect("added");
                (&raise_late).write_all(&[1]).expect("an event");
            });
            blocker.announce();
            let time = Some(Duration::from_secs(5));
            let result = blocker.block(Some(set.as_fd().into()), time, &guard);
            assert_eq!(result.expect("slept"), BlockResult::Woken);
        });
        assert_eq!(names(&set), [2]);
    }
}
