//! Completion channels: descriptors that tell when an armed CQ has something.

use super::bell::Bell;
use super::context::{self, Context, forks};
use super::cq::CqShared;
use super::device::Device;
use super::quirks::Quirks;
use crate::error::{ControlError, clear_errno, last_errno};
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicU32, Ordering};
use dv_sys::verbs::{self, ibv_comp_channel};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// A channel; several CQs may use it. Clones are handles to the same one.
///
/// Its descriptor never blocks: wait with poll, then [`CompletionChannel::drain`].
#[derive(Clone)]
pub struct CompletionChannel {
    pub(super) raw: Arc<RawChannel>,
}

/// Of so many calls of [`CompletionChannel::drain`], one takes all events.
const ALL_EVERY: u32 = 1 << 10;

impl Device {
    /// Creates a completion channel.
    ///
    /// # Errors
    /// Out of file descriptors.
    pub fn create_channel(&self) -> Result<CompletionChannel, ControlError> {
        const OPERATION: &str = "create a completion channel";
        self.context.require_here(OPERATION)?;
        // SAFETY: the context is open while `self` lives.
        let raw = unsafe { verbs::ibv_create_comp_channel(self.context.as_ptr()) };
        let raw = NonNull::new(raw).ok_or_else(|| ControlError::last(OPERATION))?;
        // SAFETY: just created; libibverbs does not change the descriptor.
        let fd = unsafe { (*raw.as_ptr()).fd };
        // From here the drop of `raw` destroys it.
        let mut raw = RawChannel {
            raw,
            fd,
            bell: None,
            forks: forks(),
            armed: AtomicU32::new(0),
            drains: AtomicU32::new(1),
            context: Arc::clone(&self.context),
        };
        context::set_nonblocking(fd, OPERATION)?;
        if Quirks::of(self.info().vendor_id).has_bell() {
            raw.bell = Some(Bell::new(fd)?);
        }
        Ok(CompletionChannel { raw: Arc::new(raw) })
    }
}

impl CompletionChannel {
    /// The descriptor, readable when an armed CQ has a completion.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        if let Some(bell) = &self.raw.bell {
            return bell.fd();
        }
        // SAFETY: the descriptor is open until the channel is destroyed, which
        // the borrow of `self` prevents.
        unsafe { BorrowedFd::borrow_raw(self.raw.fd) }
    }

    /// A CQ of this channel is being armed: it will send one event at most.
    pub(crate) fn expect_one_more(&self) {
        self.raw.armed.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the bell of the channel, on devices that need one.
    pub(super) fn bell(&self) -> Option<&Bell> {
        self.raw.bell.as_ref()
    }

    /// Takes events off the descriptor without blocking, counts each at its CQ
    /// ([`super::VerbsCq::event_count`]) and acknowledges it. Returns how many.
    ///
    /// As many as CQs were armed since the last call, and at least one if there
    /// is one: the read that would find nothing more is a system call. If more
    /// are left, the descriptor stays readable; but now and then all are taken.
    ///
    /// # Errors
    /// The device failed.
    pub fn drain(&self) -> Result<usize, ControlError> {
        const OPERATION: &str = "read completion events";
        if self.raw.forks != forks() {
            self.raw.context.require_here(OPERATION)?;
        }
        let armed = self.raw.armed.swap(0, Ordering::Relaxed);
        // A device that fires again for an arm that was repeated leaves one over.
        let most = match self.raw.drains.fetch_add(1, Ordering::Relaxed) % ALL_EVERY {
            0 => usize::MAX,
            _ => armed.max(1) as usize,
        };
        let mut taken = 0;
        if let Some(bell) = &self.raw.bell {
            // Counted at its CQ when it was rung.
            taken += usize::from(bell.take());
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
            // SAFETY: every CQ on a channel of ours was created with a
            // `CqShared` as its context (`VerbsCq::create`), which lives until
            // ibv_destroy_cq has returned; and that waits for the
            // acknowledgement below.
            let shared = unsafe { &*shared.cast_const().cast::<CqShared>() };
            shared.events.fetch_add(1, Ordering::Release);
            // SAFETY: the CQ is alive for the same reason.
            unsafe { verbs::ibv_ack_cq_events(cq, 1) };
            taken += 1;
        }
        Ok(taken)
    }
}

impl AsFd for CompletionChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd()
    }
}

/// An `ibv_comp_channel`, destroyed with its last user.
pub(super) struct RawChannel {
    raw: NonNull<ibv_comp_channel>,
    fd: i32,
    /// Watches `fd`, and is dropped after the channel is destroyed: a closed
    /// descriptor is watched no more.
    bell: Option<Bell>,
    /// When it was created: a fork must not take the parent's events.
    forks: u32,
    /// Arms since the last [`CompletionChannel::drain`].
    armed: AtomicU32,
    /// Calls of that.
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
        // SAFETY: created by `create_channel`; its CQs held an `Arc` of this
        // and are gone.
        let errno = unsafe { verbs::ibv_destroy_comp_channel(self.raw.as_ptr()) };
        if errno != 0 {
            tracing::error!(errno, "ibv_destroy_comp_channel failed");
        }
    }
}
