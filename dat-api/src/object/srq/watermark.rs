//! The low watermark of a shared receive queue: one event per setting.
//!
//! Two sources show that receives run low. A thread that takes the completion of a receive counts
//! the receives that are left; that is late if no thread polls. The device counts what it takes
//! itself, and raises an event, which may still be on its way when the watermark is set again. The
//! armed watermark is one word (the queue's `low_watermark`): the thread that changes it to 0
//! reports. An event of the device counts if its limit is no longer armed in the device; otherwise
//! it belongs to an earlier setting.
//!
//! DAT 1.2 has no event number for watermarks. The event is
//! `DAT_ASYNC_ERROR_PROVIDER_INTERNAL_ERROR` with the handle of the queue, and as its reason the
//! place of `DAT_SRQ_SOFT_LOW_WATERMARK` in its enumeration, the third.
//!
//! Decision: `docs/decisions/028-watermarks-as-async-errors.md`

use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;

use dat_engine::{AsyncEventKind, memory};

use super::Srq;
use crate::error::{DatError, Result};
use crate::handle::{self, Handle, Slot};
use crate::status::{ReturnType, Subtype};
use crate::types::{AsyncKind, AsyncReason};
use dat_engine::sync::Mutex;

/// The pauses in milliseconds before the comparisons of [`Srq::count_arriving`].
const ARRIVAL_WAITS: [u64; 6] = [0, 1, 2, 4, 8, 16];

/// The watermark that was set last.
#[derive(Debug, Default)]
pub(super) struct Watermark {
    value: AtomicU32,
    /// Whether the device checks it too. Locked while that is changed or read.
    device: Mutex<bool>,
}

impl Watermark {
    pub(super) fn value(&self) -> u32 {
        self.value.load(Ordering::Relaxed)
    }
}

/// Compares the receives left in a queue with its armed low watermark, after one was taken.
#[cold]
pub(super) fn taken(handle: Handle) {
    if let Some(srq) = handle::pin::<Srq>(handle) {
        srq.compare();
    }
}

/// Handles a device event about a queue.
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
    /// Sets the low watermark, and arms it: one asynchronous event is posted when fewer receives
    /// than that are left, at once if that is already so. 0 turns it off.
    ///
    /// # Errors
    /// `INVALID_PARAMETER` (argument 2) for a watermark above `max_recv_dtos`, or below 0.
    pub fn set_low_watermark(&self, watermark: i32) -> Result<()> {
        let most = self.capacity();
        let mark = u32::try_from(watermark)
            .ok()
            .filter(|&mark| mark <= most)
            .ok_or_else(|| {
                DatError::new(
                    ReturnType::InvalidParameter,
                    Subtype::InvalidArg2,
                    format!("invalid low watermark {watermark}: expected 0 to {most}"),
                )
            })?;
        memory::commit()?;
        // Disarms the previous setting.
        self.arm(0);
        // Receives taken before count now.
        self.take_completions();
        self.watermark.value.store(mark, Ordering::Relaxed);
        let mut device = self.watermark.device.lock();
        self.arm(mark);
        let asked = self.queue.set_limit(mark);
        *device = asked.is_ok();
        drop(device);
        if let Err(error) = asked {
            // Completions are still counted.
            tracing::debug!(
                "the device cannot check the low watermark {mark}; completions are counted instead: {error}"
            );
        }
        self.compare();
        Ok(())
    }

    fn armed(&self) -> Option<&'static AtomicU32> {
        self.handle
            .slot()
            .map(Slot::counters)
            .map(|counters| &counters.low_watermark)
    }

    fn arm(&self, mark: u32) {
        if let Some(armed) = self.armed() {
            armed.store(mark, Ordering::SeqCst);
        }
    }

    /// Compares the receives that are left with the watermark, and reports.
    fn compare(&self) {
        if let Some(mark) = self.mark()
            && self.queue.outstanding() < mark
        {
            self.report(mark);
        }
    }

    /// Returns the armed watermark.
    fn mark(&self) -> Option<u32> {
        let mark = self.armed()?.load(Ordering::SeqCst);
        (mark != 0).then_some(mark)
    }

    fn limit_reached(&self) {
        let device = self.watermark.device.lock();
        let Some(mark) = self.mark().filter(|_| *device) else {
            return;
        };
        match self.queue.verbs().limit() {
            // Whichever setting armed the device last, this is its watermark.
            Ok(0) => self.report(mark),
            Ok(_) => (),
            // siw's library cannot query the limit. The event may belong to the previous setting,
            // so the count of completions decides.
            Err(_) => {
                drop(device);
                self.count_arriving(mark);
            }
        }
    }

    /// Compares as [`Self::compare`] does, until the completion of a receive that the device has
    /// taken must have come: siw raises its event when a message begins, and completes the receive
    /// when it ends. Then asks the device for another event, because a message may take longer.
    fn count_arriving(&self, mark: u32) {
        for millis in ARRIVAL_WAITS {
            std::thread::sleep(Duration::from_millis(millis));
            self.take_completions();
            self.compare();
            if self.mark() != Some(mark) {
                return;
            }
        }
        let device = self.watermark.device.lock();
        if *device && self.mark() == Some(mark) {
            // If this fails, completions are still counted.
            let _ = self.queue.set_limit(mark);
        }
    }

    /// Reports, unless another thread has reported, or set the watermark again.
    fn report(&self, mark: u32) {
        let fired = self.armed().is_some_and(|armed| {
            armed
                .compare_exchange(mark, 0, Ordering::SeqCst, Ordering::Relaxed)
                .is_ok()
        });
        if fired {
            self.ia.report(
                AsyncKind::ProviderInternalError,
                self.handle,
                AsyncReason::Watermark,
            );
        }
    }
}
