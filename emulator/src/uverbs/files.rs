//! Which file descriptors of this process belong to the emulated device.
//!
//! Every interposed call asks [`Files::is_ours`] first: one relaxed load.
//! Only for descriptors of ours is a lock taken.

use std::collections::HashMap;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};

use libc::EMFILE;

use super::context::DeviceFile;
use super::events::Events;
use crate::nic::spec::{ChannelId, Errno, Result};
use crate::sync::{Mutex, MutexGuard};

/// The descriptors of this process.
pub static FILES: LazyLock<Files> = LazyLock::new(Files::default);

/// Descriptors from this number on are not tracked, so never handed out.
const MAX_FD: usize = 65_536;

static OURS: [AtomicU64; MAX_FD / 64] = [const { AtomicU64::new(0) }; MAX_FD / 64];

/// What a descriptor of ours is.
#[derive(Clone)]
pub enum Entry {
    /// An open device (`/dev/infiniband/uverbsN`).
    Device(Arc<DeviceFile>),
    /// The read end of an event file.
    Events(Arc<EventDescriptor>),
}

/// An event file's descriptor: closing the last duplicate closes the file.
pub struct EventDescriptor {
    /// Its name in [`super::Events`].
    pub id: ChannelId,
    events: Arc<Events>,
}

impl Drop for EventDescriptor {
    fn drop(&mut self) {
        self.events.close_file(self.id);
    }
}

/// The table.
#[derive(Default)]
pub struct Files {
    entries: Mutex<HashMap<RawFd, Tracked>>,
}

struct Tracked {
    entry: Entry,
    identity: Identity,
}

/// Device and inode: tells a descriptor of ours from another file that got
/// its number after it was closed behind our back (`close_range`, a raw
/// system call).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity(u64, u64);

impl Identity {
    fn of(fd: RawFd) -> Option<Self> {
        let mut stat = std::mem::MaybeUninit::<libc::stat>::uninit();
        // The call underneath `fstat`, which this library may interpose.
        // SAFETY: an empty path with AT_EMPTY_PATH names the descriptor, and
        // `stat` has room for the answer.
        let done =
            unsafe { libc::fstatat(fd, c"".as_ptr(), stat.as_mut_ptr(), libc::AT_EMPTY_PATH) };
        // SAFETY: a successful call has written all of it.
        (done == 0)
            .then(|| unsafe { stat.assume_init() })
            .map(|stat| Self(stat.st_dev, stat.st_ino))
    }
}

impl Files {
    /// Whether a descriptor may be one of ours; `false` is certain.
    #[inline]
    pub fn is_ours(fd: RawFd) -> bool {
        usize::try_from(fd)
            .ok()
            .and_then(|fd| Some(OURS.get(fd / 64)?.load(Relaxed) & (1 << (fd % 64)) != 0))
            .unwrap_or(false)
    }

    /// Hands an open device to the application.
    ///
    /// # Errors
    /// `EMFILE` if the number is too high to be tracked.
    pub fn publish_device(&self, fd: OwnedFd, device: Arc<DeviceFile>) -> Result<RawFd> {
        self.publish(fd, Entry::Device(device))
    }

    /// Hands the read end of an event file to the application.
    ///
    /// # Errors
    /// `EMFILE` if the number is too high to be tracked.
    pub fn publish_events(
        &self,
        fd: OwnedFd,
        id: ChannelId,
        events: &Arc<Events>,
    ) -> Result<RawFd> {
        let events = Arc::clone(events);
        self.publish(fd, Entry::Events(Arc::new(EventDescriptor { id, events })))
    }

    fn publish(&self, fd: OwnedFd, entry: Entry) -> Result<RawFd> {
        let identity = Identity::of(fd.as_raw_fd()).ok_or(Errno(libc::EBADF))?;
        let number = fd.as_raw_fd();
        if usize::try_from(number).is_ok_and(|number| number >= MAX_FD) {
            return Err(Errno(EMFILE));
        }
        let stale = self
            .lock()
            .insert(fd.into_raw_fd(), Tracked { entry, identity });
        mark(number, true);
        drop(stale);
        Ok(number)
    }

    /// What a descriptor is, if it is (still) one of ours.
    pub fn get(&self, fd: RawFd) -> Option<Entry> {
        if !Self::is_ours(fd) {
            return None;
        }
        let identity = Identity::of(fd);
        let mut entries = self.lock();
        let tracked = entries.get(&fd)?;
        if Some(tracked.identity) == identity {
            return Some(tracked.entry.clone());
        }
        let stale = entries.remove(&fd);
        mark(fd, false);
        drop(entries);
        drop(stale);
        None
    }

    /// The open device behind a descriptor.
    pub fn device(&self, fd: RawFd) -> Option<Arc<DeviceFile>> {
        match self.get(fd)? {
            Entry::Device(device) => Some(device),
            Entry::Events(_) => None,
        }
    }

    /// The event file behind a descriptor.
    ///
    /// # Errors
    /// `EBADF` if it is none, as the kernel's lookup of descriptors.
    pub fn events(&self, fd: RawFd) -> Result<ChannelId> {
        match self.get(fd) {
            Some(Entry::Events(events)) => Ok(events.id),
            _ => Err(Errno(libc::EBADF)),
        }
    }

    /// `to` was made a duplicate of `from`. Whatever `to` was, it is closed.
    pub fn duplicated(&self, from: RawFd, to: RawFd) {
        let entry = self.get(from);
        self.closed(to);
        let (Some(entry), Some(identity)) = (entry, Identity::of(to)) else {
            return;
        };
        if usize::try_from(to).is_ok_and(|to| to < MAX_FD) {
            self.lock().insert(to, Tracked { entry, identity });
            mark(to, true);
        }
    }

    /// A descriptor was or is about to be closed. Closing the last one of a
    /// device destroys everything made through it.
    pub fn closed(&self, fd: RawFd) {
        if Self::is_ours(fd) {
            mark(fd, false);
            let closed = self.lock().remove(&fd);
            // Outside the lock: this may destroy a device's objects.
            drop(closed);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<RawFd, Tracked>> {
        self.entries.lock()
    }
}

fn mark(fd: RawFd, ours: bool) {
    let Some(word) = usize::try_from(fd).ok().and_then(|fd| OURS.get(fd / 64)) else {
        return;
    };
    let bit = 1 << (fd % 64);
    if ours {
        word.fetch_or(bit, Relaxed);
    } else {
        word.fetch_and(!bit, Relaxed);
    }
}
