//! The file descriptors of this process that belong to emulated devices.
//!
//! Every interposed call first checks [`Files::may_be_emulated`], which costs one relaxed
//! load. A lock is taken only for descriptors that belong to a device.

use std::collections::HashMap;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};

use libc::EMFILE;

use super::context::DeviceFile;
use super::events::Events;
use crate::nic::spec::{ChannelId, Result};
use crate::preload::real;
use crate::refusal::{OrRefuse, refuse};
use crate::sync::{Mutex, MutexGuard};
use crate::ucma::CmFile;

/// The table of descriptors of this process.
pub static FILES: LazyLock<Files> = LazyLock::new(Files::default);

/// Descriptors from this number on are not tracked, and never returned.
const MAX_FD: usize = 65_536;

static EMULATED: [AtomicU64; MAX_FD / 64] = [const { AtomicU64::new(0) }; MAX_FD / 64];

/// The file behind an emulated descriptor.
#[derive(Clone)]
pub(crate) enum Entry {
    /// An open device (`/dev/infiniband/uverbsN`).
    Device(Arc<DeviceFile>),
    /// The read end of an event file.
    Events(Arc<EventDescriptor>),
    /// `/dev/infiniband/rdma_cm`.
    Cm(Arc<CmFile>),
    /// A socket of RDMA netlink, and the socket that sends its replies.
    Netlink(Arc<OwnedFd>),
}

/// The descriptor of an event file. Closing the last duplicate closes the file.
pub struct EventDescriptor {
    /// The number of the file in [`super::Events`].
    pub id: ChannelId,
    events: Arc<Events>,
}

impl Drop for EventDescriptor {
    fn drop(&mut self) {
        self.events.close_file(self.id);
    }
}

/// The table of emulated descriptors.
#[derive(Default)]
pub struct Files {
    entries: Mutex<HashMap<RawFd, Tracked>>,
}

struct Tracked {
    entry: Entry,
    identity: Identity,
}

/// Device and inode of a file. They distinguish an emulated file from another file
/// that reused its descriptor after a close that was not interposed (`close_range`, a
/// raw system call).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity(u64, u64);

impl Identity {
    fn of(fd: RawFd) -> Option<Self> {
        let mut stat = std::mem::MaybeUninit::<libc::stat>::uninit();
        // SAFETY: `stat` has room for the result.
        let done = unsafe { real::fstat(fd, stat.as_mut_ptr()) };
        // SAFETY: a successful call has initialised it.
        (done == 0)
            .then(|| unsafe { stat.assume_init() })
            .map(|stat| Self(stat.st_dev, stat.st_ino))
    }
}

impl Files {
    /// Returns whether a descriptor may be emulated; `false` is certain.
    #[inline]
    pub fn may_be_emulated(fd: RawFd) -> bool {
        usize::try_from(fd)
            .ok()
            .and_then(|fd| Some(EMULATED.get(fd / 64)?.load(Relaxed) & (1 << (fd % 64)) != 0))
            .unwrap_or(false)
    }

    /// Adds the descriptor of an open device.
    ///
    /// # Errors
    /// `EMFILE` if the number is too high to be tracked.
    pub fn publish_device(&self, fd: OwnedFd, device: Arc<DeviceFile>) -> Result<RawFd> {
        self.publish(fd, Entry::Device(device))
    }

    /// Adds the descriptor of `/dev/infiniband/rdma_cm`.
    ///
    /// # Errors
    /// `EMFILE` if the number is too high to be tracked.
    pub(crate) fn publish_cm(&self, fd: OwnedFd, file: Arc<CmFile>) -> Result<RawFd> {
        self.publish(fd, Entry::Cm(file))
    }

    /// Adds the descriptor of an event file's read end.
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

    /// Adds a socket of RDMA netlink; `responder` sends the replies to it.
    ///
    /// # Errors
    /// `EMFILE` if the number is too high to be tracked.
    pub fn publish_netlink(&self, fd: OwnedFd, responder: Arc<OwnedFd>) -> Result<RawFd> {
        self.publish(fd, Entry::Netlink(responder))
    }

    fn publish(&self, fd: OwnedFd, entry: Entry) -> Result<RawFd> {
        let identity = Identity::of(fd.as_raw_fd());
        let identity = identity.or_refuse(libc::EBADF, "the file descriptor is not open")?;
        let number = fd.as_raw_fd();
        if usize::try_from(number).is_ok_and(|number| number >= MAX_FD) {
            return Err(refuse(
                EMFILE,
                "the number of the file descriptor is above what the emulated device tracks",
            ));
        }
        let stale = self
            .lock()
            .insert(fd.into_raw_fd(), Tracked { entry, identity });
        mark(number, true);
        drop(stale);
        Ok(number)
    }

    /// Returns the file behind a descriptor if it is (still) emulated.
    pub(crate) fn get(&self, fd: RawFd) -> Option<Entry> {
        if !Self::may_be_emulated(fd) {
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

    /// Returns the open `/dev/infiniband/rdma_cm` behind a descriptor.
    pub(crate) fn cm(&self, fd: RawFd) -> Option<Arc<CmFile>> {
        match self.get(fd)? {
            Entry::Cm(file) => Some(file),
            Entry::Device(_) | Entry::Events(_) | Entry::Netlink(_) => None,
        }
    }

    /// Returns the socket that sends the replies to a socket of RDMA netlink.
    pub fn netlink(&self, fd: RawFd) -> Option<Arc<OwnedFd>> {
        match self.get(fd)? {
            Entry::Netlink(responder) => Some(responder),
            Entry::Device(_) | Entry::Events(_) | Entry::Cm(_) => None,
        }
    }

    /// Returns the event file behind a descriptor.
    ///
    /// # Errors
    /// `EBADF` if it is not an event file, as in the kernel.
    pub fn events(&self, fd: RawFd) -> Result<ChannelId> {
        match self.get(fd) {
            Some(Entry::Events(events)) => Ok(events.id),
            _ => Err(refuse(
                libc::EBADF,
                "the file descriptor is not that of a completion channel or event file",
            )),
        }
    }

    /// Records that `to` is a duplicate of `from`, which has closed the former `to`.
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

    /// Records that a descriptor is closed. Closing the last descriptor of a device
    /// destroys all its objects.
    pub fn closed(&self, fd: RawFd) {
        if Self::may_be_emulated(fd) {
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

fn mark(fd: RawFd, emulated: bool) {
    let Some(word) = usize::try_from(fd)
        .ok()
        .and_then(|fd| EMULATED.get(fd / 64))
    else {
        return;
    };
    let bit = 1 << (fd % 64);
    if emulated {
        word.fetch_or(bit, Relaxed);
    } else {
        word.fetch_and(!bit, Relaxed);
    }
}
