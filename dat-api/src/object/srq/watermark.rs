//! The low watermark of a shared receive queue: one event per setting.
//!
//! Two can see that receives run low. Whoever takes the completion of a
//! receive counts what is left; that is exact, but late if nobody takes them.
//! The device counts what it takes itself, and tells by an event that may
//! still be on its way when the watermark is set anew. The armed watermark is
//! one word (the queue's first meter): who swaps it for 0 reports. An event of
//! the device counts only if its limit is not armed any more; else it belongs
//! to an earlier setting.
//!
//! 1.2 has no event number for watermarks. The event is
//! `DAT_ASYNC_ERROR_PROVIDER_INTERNAL_ERROR` with the handle of the queue and
//! the reason `DAT_SRQ_SOFT_LOW_WATERMARK`'s place in its enumeration, the
//! third.

use core::sync::atomic::{AtomicU32, Ordering};

use dat_engine::AsyncEventKind;

use super::Srq;
use crate::error::{DatError, Result};
use crate::handle::{self, Handle, Slot};
use crate::status::{ReturnType, Subtype};
use crate::types::{AsyncKind, AsyncReason};

/// What was set last.
#[derive(Debug, Default)]
pub(super) struct Watermark(AtomicU32);

impl Watermark {
    pub(super) fn value(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Called by the EVD after it has handed out (or staged) a receive of an
/// endpoint on this queue, while a low watermark is armed.
pub(crate) fn taken(handle: Handle) {
    if let Some(srq) = handle::pin::<Srq>(handle) {
        srq.look();
    }
}

/// The device tells something about a queue.
pub(super) fn device_event(handle: Handle, kind: AsyncEventKind) {
    let Some(srq) = handle::pin::<Srq>(handle) else {
        return;
    };
    match kind {
        AsyncEventKind::SrqLimit => srq.limit_reached(),
        AsyncEventKind::SrqError | AsyncEventKind::DeviceFatal => {
            srq.failed.store(true, Ordering::Release);
        }
        _ => {}
    }
}

impl Srq {
    /// Sets the low watermark, and arms it: one asynchronous event when fewer
    /// receives than that are left, at once if it is so already. 0 is off.
    ///
    /// # Errors
    /// `INVALID_PARAMETER` (argument 2) for a watermark above `max_recv_dtos`,
    /// or below 0.
    pub fn set_low_watermark(&self, watermark: i32) -> Result<()> {
        let most = self.capacity();
        let mark = u32::try_from(watermark)
            .ok()
            .filter(|&mark| mark <= most)
            .ok_or_else(|| {
                DatError::new(
                    ReturnType::InvalidParameter,
                    Subtype::InvalidArg2,
                    format!("a low watermark of {watermark}; it must be 0 to {most}"),
                )
            })?;
        // The setting before ends here.
        self.disarm();
        // What was taken before counts now.
        self.take_completions();
        self.watermark.0.store(mark, Ordering::Relaxed);
        self.arm(mark);
        if let Err(error) = self.queue.set_limit(mark) {
            // Its own count remains.
            tracing::debug!("the device keeps no watermark of {mark}: {error}");
        }
        self.look();
        Ok(())
    }

    fn armed(&self) -> Option<&'static AtomicU32> {
        self.handle
            .slot()
            .map(Slot::meters)
            .map(|meters| &meters.first)
    }

    fn arm(&self, mark: u32) {
        if let Some(armed) = self.armed() {
            armed.store(mark, Ordering::SeqCst);
        }
    }

    /// Answers whether it was armed.
    fn disarm(&self) -> bool {
        self.armed()
            .is_some_and(|armed| armed.swap(0, Ordering::SeqCst) != 0)
    }

    /// Compares what is left with the watermark.
    fn look(&self) {
        let mark = self.armed().map_or(0, |armed| armed.load(Ordering::SeqCst));
        if mark != 0 && self.queue.outstanding() < mark {
            self.report();
        }
    }

    fn limit_reached(&self) {
        // Armed still: the event is of an earlier setting.
        if self.queue.verbs().limit().is_ok_and(|limit| limit != 0) {
            return;
        }
        self.report();
    }

    fn report(&self) {
        if self.disarm() {
            self.ia.report(
                AsyncKind::ProviderInternalError,
                self.handle,
                AsyncReason::Watermark,
            );
        }
    }
}
