//! The file descriptor of a CNO, which a program polls together with sockets.
//!
//! It is readable when a trigger is pending that was not there when it was armed. Arming it, and
//! taking a trigger, are those of a wait that begins (`protocol.rs`); no thread stands between the
//! device and the descriptor.
//!
//! Decision: `docs/decisions/080-cno-descriptor.md`

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

use dat_engine::memory;
use dat_engine::wait::Blocker;

use super::protocol::{DESCRIPTOR, Poller, WaitEnd};
use super::{Cno, new_waiter, no_descriptors};
use crate::error::Result;
use crate::handle;
use crate::refusal::CnoRefusal;

/// The descriptor, and what other threads make it readable by.
pub(super) struct Descriptor {
    alarm: Arc<Blocker>,
    fd: OwnedFd,
}

impl Cno {
    /// Returns the descriptor of the CNO, which the first call creates. It is for `poll`, `select`
    /// and `epoll`, also edge-triggered; it is closed when the CNO is dropped, after
    /// [`Self::free`].
    ///
    /// It becomes readable when an EVD triggers the CNO; when the IA is closed, or the last EVD is
    /// freed; and sometimes without a reason. It stays so until [`Self::trigger`], [`Self::arm`] or
    /// [`wait`](super::wait) arms it. No dequeue does.
    ///
    /// # Errors
    /// `INSUFFICIENT_RESOURCES`: the process has no descriptors left; it takes two.
    pub fn descriptor(&self) -> Result<BorrowedFd<'_>> {
        if let Some(fd) = self.existing_descriptor() {
            return Ok(fd);
        }
        let (alarm, _) = new_waiter()?;
        let fd = self.channels.with_alarm(&alarm);
        let fd = fd.map_err(|error| no_descriptors(&error))?;
        let descriptor = self.update(|table| -> Result<_> {
            table.queues[DESCRIPTOR].waiters.reserve(1);
            memory::commit()?;
            // Another thread may have created one meanwhile.
            Ok(self.descriptor.get_or_init(|| {
                table.add_descriptor(&alarm);
                Descriptor { alarm, fd }
            }))
        })?;
        Ok(descriptor.fd.as_fd())
    }

    /// Returns the descriptor, if there is one already.
    #[must_use]
    pub fn existing_descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.descriptor.get()?.fd.as_fd())
    }

    /// Arms the descriptor: it is not readable until a later event triggers the CNO. The caller then
    /// takes all events of all EVDs, and polls the descriptor after that. Triggers that are there
    /// are dropped for the descriptor, though not for threads that wait.
    ///
    /// # Errors
    /// `INVALID_STATE`: there is no descriptor. `INVALID_HANDLE`: the CNO is being freed.
    /// `INTERNAL_ERROR`: the device cannot be armed.
    pub fn arm(self: &Arc<Self>) -> Result<(), CnoRefusal> {
        let alarm = self.live_alarm()?;
        let mut poller = Poller::new(self, DESCRIPTOR, Some(alarm));
        poller.arm_descriptor(alarm);
        let is_over = self.update(|table| {
            table.forget(alarm);
            table.is_over
        });
        match poller.has_failed {
            _ if is_over => Err(CnoRefusal::Freed),
            true => Err(CnoRefusal::DeviceFailed),
            false => Ok(()),
        }
    }

    /// Takes a trigger for the descriptor, as a [`wait`](super::wait) without time does, and arms
    /// the descriptor. It stays readable while other triggers are pending, and, unless the IA is
    /// strict, while the EVD holds further events that notify.
    ///
    /// # Errors
    /// `QUEUE_EMPTY` if there is no trigger: poll the descriptor. The others as [`Self::arm`].
    pub fn trigger(self: &Arc<Self>) -> WaitEnd {
        let alarm = self.live_alarm()?;
        let mut poller = Poller::new(self, DESCRIPTOR, Some(alarm));
        poller.poll_first().unwrap_or_else(|| {
            Err(match self.update(|table| table.is_over) {
                true => CnoRefusal::Freed,
                false => self.empty(),
            })
        })
    }

    /// Returns what makes the descriptor readable, unless the CNO is not this process's: a forked
    /// child would take its parent's wake-ups.
    fn live_alarm(&self) -> Result<&Arc<Blocker>, CnoRefusal> {
        if handle::pin::<Self>(self.handle).is_none() {
            return Err(CnoRefusal::Freed);
        }
        self.alarm().ok_or(CnoRefusal::NoDescriptor)
    }

    /// Returns what makes the descriptor readable, if there is one.
    pub(super) fn alarm(&self) -> Option<&Arc<Blocker>> {
        Some(&self.descriptor.get()?.alarm)
    }
}
