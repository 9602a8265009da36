//! Completion channels: descriptors that are readable when an armed CQ has raised
//! an event.

use super::context::{self, Context, forks};
use super::cq::CqShared;
use super::device::Device;
use super::quirks::Quirks;
use super::software_event::SoftwareEvent;
use crate::error::{ControlError, clear_errno, last_errno};
use crate::wait::ChannelFds;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicU32, Ordering};
use dv_sys::verbs::{self, ibv_comp_channel};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// A completion channel, which several CQs may share. Clones are handles to the
/// same channel.
///
/// Its descriptors never block: wait with `poll` until one is readable, then call
/// [`CompletionChannel::drain`].
#[derive(Clone)]
pub struct CompletionChannel {
    pub(super) raw: Arc<RawChannel>,
}

/// One of this many calls of [`CompletionChannel::drain`] takes all events.
const ALL_EVERY: u32 = 1 << 10;

impl Device {
    /// Creates a completion channel.
    ///
    /// # Errors
    /// The process has no file descriptors left.
    pub fn create_channel(&self) -> Result<CompletionChannel, ControlError> {
        const OPERATION: &str = "create a completion channel";
        self.context.require_here(OPERATION)?;
        // SAFETY: the context is open while `self` lives.
        let raw = unsafe { verbs::ibv_create_comp_channel(self.context.as_ptr()) };
        let raw = NonNull::new(raw).ok_or_else(|| ControlError::last(OPERATION))?;
        // SAFETY: just created; libibverbs does not change the descriptor.
        let fd = unsafe { (*raw.as_ptr()).fd };
        // From here on, dropping `raw` destroys the channel.
        let mut raw = RawChannel {
            raw,
            fd,
            software_event: None,
            forks: forks(),
            armed: AtomicU32::new(0),
            drains: AtomicU32::new(1),
            context: Arc::clone(&self.context),
        };
        context::set_nonblocking(fd, OPERATION)?;
        if Quirks::of(self.info().vendor_id).has_software_events() {
            raw.software_event = Some(SoftwareEvent::new()?);
        }
        Ok(CompletionChannel { raw: Arc::new(raw) })
    }
}

impl CompletionChannel {
    /// Returns the descriptors, one of which is readable when an armed CQ has raised
    /// an event.
    #[must_use]
    pub fn fds(&self) -> ChannelFds<'_> {
        ChannelFds {
            // SAFETY: the descriptor stays open until the channel is destroyed, which
            // the borrow of `self` prevents.
            kernel: unsafe { BorrowedFd::borrow_raw(self.raw.fd) },
            software_event: self.software_event().map(SoftwareEvent::fd),
        }
    }

    /// Counts an arm of a CQ on this channel: it raises at most one event.
    pub(crate) fn expect_one_more(&self) {
        self.raw.armed.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the source of the engine's own events, on devices that need one.
    pub(super) fn software_event(&self) -> Option<&SoftwareEvent> {
        self.raw.software_event.as_ref()
    }

    /// Takes events off the descriptors without blocking, counts each at its CQ
    /// ([`super::VerbsCq::event_count`]) and acknowledges it. Returns how many.
    ///
    /// Takes at most one event per arm since the last call, but tries at least one:
    /// the read that finds the channel empty is a system call. If more events are
    /// left, a descriptor stays readable; one of many calls takes all events.
    ///
    /// # Errors
    /// The device failed.
    pub fn drain(&self) -> Result<usize, ControlError> {
        const OPERATION: &str = "read completion events";
        if self.raw.forks != forks() {
            self.raw.context.require_here(OPERATION)?;
        }
        let armed = self.raw.armed.swap(0, Ordering::Relaxed);
        // A device that raises two events for a repeated arm leaves one over.
        let most = match self.raw.drains.fetch_add(1, Ordering::Relaxed) % ALL_EVERY {
            0 => usize::MAX,
            _ => armed.max(1) as usize,
        };
        let mut taken = 0;
        if let Some(software_event) = &self.raw.software_event {
            // The CQ counted this event when the event was raised.
            taken += usize::from(software_event.take());
        }
        let most = most.saturating_add(taken);
        while taken < most {
            let (mut cq, mut shared) = (ptr::null_mut(), ptr::null_mut());
            clear_errno();
            // SAFETY: the channel is alive; both results are writable.
            let failed = unsafe {
                verbs::ibv_get_cq_event(self.raw.raw.as_ptr(), &raw mut cq, &raw mut shared)
            } != 0;
            if failed {
                match last_errno() {
                    libc::EAGAIN => return Ok(taken),
                    libc::EINTR => continue,
                    errno => return Err(ControlError::verbs(OPERATION, errno)),
                }
            }
            // SAFETY: every CQ on a channel of the engine was created with a
            // `CqShared` as its context (`VerbsCq::create`), which lives until
            // ibv_destroy_cq has returned; that call waits for the acknowledgement
            // below.
            let shared = unsafe { &*shared.cast_const().cast::<CqShared>() };
            shared.events.fetch_add(1, Ordering::Release);
            // SAFETY: the CQ is alive for the same reason.
            unsafe { verbs::ibv_ack_cq_events(cq, 1) };
            taken += 1;
        }
        Ok(taken)
    }
}

/// An `ibv_comp_channel`, destroyed with its last user.
pub(super) struct RawChannel {
    raw: NonNull<ibv_comp_channel>,
    fd: i32,
    software_event: Option<SoftwareEvent>,
    /// The fork count at creation: a forked child must not take the parent's
    /// events.
    forks: u32,
    /// The number of arms since the last [`CompletionChannel::drain`].
    armed: AtomicU32,
    /// The number of calls of [`CompletionChannel::drain`].
    drains: AtomicU32,
    context: Arc<Context>,
}

// SAFETY: libibverbs lets any thread use a channel, several at a time.
unsafe impl Send for RawChannel {}
// SAFETY: as above.
unsafe impl Sync for RawChannel {}

impl RawChannel {
    pub(super) fn as_ptr(&self) -> *mut ibv_comp_channel {
        self.raw.as_ptr()
    }

    pub(super) fn belongs_to(&self, context: &Arc<Context>) -> bool {
        Arc::ptr_eq(&self.context, context)
    }
}

impl Drop for RawChannel {
    fn drop(&mut self) {
        if !self.context.here() {
            return;
        }
        // SAFETY: created by `create_channel`; its CQs held an `Arc` of this and
        // were destroyed.
        let errno = unsafe { verbs::ibv_destroy_comp_channel(self.raw.as_ptr()) };
        if errno != 0 {
            tracing::error!(errno, "ibv_destroy_comp_channel failed");
        }
    }
}
