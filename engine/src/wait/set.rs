//! Several channels as one descriptor.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libc::{c_int, epoll_event};

use super::raw;
use crate::error::{ControlError, last_errno};

/// A set of channels, readable while one of them is: what [`super::Blocker`]
/// sleeps on where a wait is for the events of several queues (`epoll`, which
/// may be nested).
///
/// Any thread may add and remove, also while others sleep on the set. Who sleeps
/// on it is told of an event of a channel that comes while it sleeps, even if
/// earlier ones have been left there.
#[derive(Debug)]
pub struct ChannelSet(OwnedFd);

impl ChannelSet {
    /// An empty one.
    ///
    /// # Errors
    /// Out of file descriptors: it takes one.
    pub fn new() -> Result<Self, ControlError> {
        // SAFETY: takes an integer.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(ControlError::last("make a set of channels"));
        }
        // SAFETY: just created, and nobody else's.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Adds a channel, which [`Self::readable`] calls by this name. One that is
    /// there already only gets the name.
    ///
    /// # Errors
    /// The system refuses: out of memory, or of watches for this user.
    pub fn add(&self, channel: BorrowedFd<'_>, name: u64) -> Result<(), ControlError> {
        if self.control(libc::EPOLL_CTL_ADD, channel, name)
            || (last_errno() == libc::EEXIST && self.control(libc::EPOLL_CTL_MOD, channel, name))
        {
            return Ok(());
        }
        Err(ControlError::last("watch a channel"))
    }

    /// Removes a channel, if it is there.
    pub fn remove(&self, channel: BorrowedFd<'_>) {
        self.control(libc::EPOLL_CTL_DEL, channel, 0);
    }

    fn control(&self, operation: c_int, channel: BorrowedFd<'_>, name: u64) -> bool {
        let mut event = epoll_event {
            events: libc::EPOLLIN.cast_unsigned(),
            u64: name,
        };
        // SAFETY: two descriptors and an event that is read.
        unsafe {
            libc::epoll_ctl(
                self.0.as_raw_fd(),
                operation,
                channel.as_raw_fd(),
                &raw mut event,
            ) == 0
        }
    }

    /// The names of channels that are readable now, as many as `events` has room
    /// for. Does not block.
    pub fn readable<'a>(&self, events: &'a mut [ChannelEvent]) -> impl Iterator<Item = u64> + 'a {
        let found = match events.len() {
            // The call wants room for one at least.
            0 => 0,
            _ => raw::epoll(self.0.as_raw_fd(), ChannelEvent::inner(events), false, None),
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

/// Room for what [`ChannelSet::readable`] finds.
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
    fn it_names_the_channels_that_have_something() {
        let set = ChannelSet::new().expect("a set");
        let pairs = [(); 3].map(|()| UnixStream::pair().expect("a channel"));
        for ((channel, _), name) in pairs.iter().zip(5..) {
            set.add(channel.as_fd(), name).expect("added");
        }
        assert!(names(&set).is_empty());
        for at in [0, 2] {
            (&pairs[at].1).write_all(&[1]).expect("an event");
        }
        assert_eq!(names(&set), [5, 7]);
        assert_eq!(names(&set), [5, 7], "as long as it is there");
        (&pairs[0].0).read_exact(&mut [0]).expect("the event");
        assert_eq!(names(&set), [7]);
        set.add(pairs[2].0.as_fd(), 9).expect("named anew");
        assert_eq!(names(&set), [9]);
        set.remove(pairs[2].0.as_fd());
        set.remove(pairs[2].0.as_fd());
        assert!(names(&set).is_empty());
        assert_eq!(set.readable(&mut []).count(), 0);
    }

    /// What nobody has taken wakes once; what comes new wakes again.
    #[test]
    fn who_sleeps_on_it_is_told_of_each_event() {
        let set = ChannelSet::new().expect("a set");
        let (channel, raise) = UnixStream::pair().expect("a channel");
        set.add(channel.as_fd(), 1).expect("added");
        let blocker = Blocker::new().expect("a blocker");
        let guard = SignalGuard::new();
        let sleep = || {
            blocker.announce();
            let time = Some(Duration::from_millis(20));
            blocker
                .block(Some(set.as_fd()), time, &guard)
                .expect("slept")
        };
        assert_eq!(sleep(), BlockResult::TimedOut);
        for _ in 0..3 {
            (&raise).write_all(&[1]).expect("an event");
            assert_eq!(sleep(), BlockResult::Woken);
            assert_eq!(sleep(), BlockResult::TimedOut, "told already");
        }
        // A channel that comes to the set while somebody sleeps counts too.
        let (late, raise_late) = UnixStream::pair().expect("a channel");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(5));
                set.add(late.as_fd(), 2).expect("added");
                (&raise_late).write_all(&[1]).expect("an event");
            });
            blocker.announce();
            let time = Some(Duration::from_secs(5));
            let result = blocker.block(Some(set.as_fd()), time, &guard);
            assert_eq!(result.expect("slept"), BlockResult::Woken);
        });
        assert_eq!(names(&set), [1, 2]);
    }
}
