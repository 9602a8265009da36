//! The file descriptors of this process that belong to emulated devices.
//!
//! Every interposed call first checks [`Files::may_be_emulated`], which costs one relaxed
//! load. A lock is taken only for descriptors that belong to a device.

use std::collections::HashMap;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use libc::EMFILE;

use super::context::DeviceFile;
use super::events::Events;
use crate::fork::PerProcess;
use crate::hidden::HiddenFile;
use crate::real;
use crate::refusal::{OrRefuse, refuse};
use crate::spec::{ChannelId, Result};
use crate::sync::{Mutex, MutexGuard};
use crate::ucma::CmFile;

/// Returns the table of descriptors of this process.
pub fn files() -> &'static Files {
    static FILES: PerProcess<Files> = PerProcess::new();
    FILES.get()
}

/// Descriptors from this number on are not tracked, and never returned.
const MAX_FD: usize = 65_536;

/// The identity of the emulated file behind each descriptor, 0 for others. A forked child
/// recognises its parent's files by it, whose table it does not have.
static EMULATED: [AtomicU64; MAX_FD] = [const { AtomicU64::new(0) }; MAX_FD];

/// The file behind an emulated descriptor.
#[derive(Clone)]
pub(crate) enum EmulatedFile {
    /// An open device (`/dev/infiniband/uverbsN`).
    Device(Arc<DeviceFile>),
    /// The read end of an event file.
    Events(Arc<EventDescriptor>),
    /// `/dev/infiniband/rdma_cm`.
    Cm(Arc<CmFile>),
    /// A socket of RDMA netlink, and the socket that sends its replies.
    Netlink(Arc<HiddenFile>),
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
    entries: Mutex<HashMap<RawFd, EmulatedFile>>,
}

/// Returns a number made of device and inode of a file, not 0. It distinguishes an
/// emulated file from another file that reused its descriptor after a close that was not
/// interposed (a raw system call).
fn identity_of(fd: RawFd) -> Option<u64> {
    let mut stat = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: `stat` has room for the result.
    let done = unsafe { real::fstat(fd, stat.as_mut_ptr()) };
    // SAFETY: a successful call has initialised it.
    let stat = (done == 0).then(|| unsafe { stat.assume_init() })?;
    Some(stat.st_dev.rotate_left(48) ^ stat.st_ino | 1 << 63)
}

impl Files {
    /// Returns whether a descriptor may be emulated; `false` is certain.
    #[inline]
    pub fn may_be_emulated(fd: RawFd) -> bool {
        recorded(fd).is_some_and(|it| it.load(Relaxed) != 0)
    }

    /// Returns whether the file behind a descriptor is emulated, in this process or in the
    /// one that has forked it. Takes no lock.
    pub fn is_inherited(fd: RawFd) -> bool {
        recorded(fd).is_some_and(|it| Some(it.load(Relaxed)) == identity_of(fd))
    }

    /// Adds the descriptor of an open device.
    ///
    /// # Errors
    /// `EMFILE` if the number is too high to be tracked.
    pub fn publish_device(&self, fd: OwnedFd, device: Arc<DeviceFile>) -> Result<RawFd> {
        self.publish(fd, EmulatedFile::Device(device))
    }

    /// Adds the descriptor of `/dev/infiniband/rdma_cm`.
    ///
    /// # Errors
    /// `EMFILE` if the number is too high to be tracked.
    pub(crate) fn publish_cm(&self, fd: OwnedFd, file: Arc<CmFile>) -> Result<RawFd> {
        self.publish(fd, EmulatedFile::Cm(file))
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
        self.publish(
            fd,
            EmulatedFile::Events(Arc::new(EventDescriptor { id, events })),
        )
    }

    /// Adds a socket of RDMA netlink; `responder` sends the replies to it.
    ///
    /// # Errors
    /// `EMFILE` if the number is too high to be tracked.
    pub(crate) fn publish_netlink(&self, fd: OwnedFd, responder: Arc<HiddenFile>) -> Result<RawFd> {
        self.publish(fd, EmulatedFile::Netlink(responder))
    }

    fn publish(&self, fd: OwnedFd, entry: EmulatedFile) -> Result<RawFd> {
        let identity = identity_of(fd.as_raw_fd());
        let identity = identity.or_refuse(libc::EBADF, "the file descriptor is not open")?;
        let recorded = recorded(fd.as_raw_fd()).or_refuse(
            EMFILE,
            "the number of the file descriptor is above what the emulated device tracks",
        )?;
        let number = fd.into_raw_fd();
        let stale = self.lock().insert(number, entry);
        recorded.store(identity, Relaxed);
        drop(stale);
        Ok(number)
    }

    /// Returns the file behind a descriptor if it is (still) emulated.
    pub(crate) fn get(&self, fd: RawFd) -> Option<EmulatedFile> {
        if !Self::may_be_emulated(fd) {
            return None;
        }
        if Self::is_inherited(fd) {
            return self.lock().get(&fd).cloned();
        }
        self.closed(fd);
        None
    }

    /// Returns the open `/dev/infiniband/rdma_cm` behind a descriptor.
    pub(crate) fn cm(&self, fd: RawFd) -> Option<Arc<CmFile>> {
        match self.get(fd)? {
            EmulatedFile::Cm(file) => Some(file),
            EmulatedFile::Device(_) | EmulatedFile::Events(_) | EmulatedFile::Netlink(_) => None,
        }
    }

    /// Returns the event file behind a descriptor.
    ///
    /// # Errors
    /// `EBADF` if it is not an event file, as in the kernel.
    pub fn events(&self, fd: RawFd) -> Result<ChannelId> {
        match self.get(fd) {
            Some(EmulatedFile::Events(events)) => Ok(events.id),
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
        let (Some(recorded), Some(identity)) = (recorded(to), identity_of(to)) else {
            return;
        };
        // A duplicate of a file of the parent is one, too.
        if entry.is_some() || Self::is_inherited(from) {
            entry.and_then(|entry| self.lock().insert(to, entry));
            recorded.store(identity, Relaxed);
        }
    }

    /// Records that a descriptor is closed. Closing the last descriptor of a device
    /// destroys all its objects.
    pub fn closed(&self, fd: RawFd) {
        if let Some(recorded) = recorded(fd).filter(|it| it.load(Relaxed) != 0) {
            recorded.store(0, Relaxed);
            let closed = self.lock().remove(&fd);
            // Outside the lock: this may destroy a device's objects.
            drop(closed);
        }
    }

    /// Records that all descriptors of a range are closed.
    pub(crate) fn closed_range(&self, first: u32, last: u32) {
        let range = first..=last;
        let open = self.lock().keys().copied().collect::<Vec<RawFd>>();
        let closed = open.into_iter();
        closed
            .filter(|fd| range.contains(&fd.cast_unsigned()))
            .for_each(|fd| self.closed(fd));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<RawFd, EmulatedFile>> {
        self.entries.lock()
    }
}

fn recorded(fd: RawFd) -> Option<&'static AtomicU64> {
    EMULATED.get(usize::try_from(fd).ok()?)
}
