//! Rings whose consumer index reaches the doorbell record rarely.
//!
//! A completion queue that ignores overruns does not compare its producer index with the
//! consumer index, so the device needs the doorbell record only when the queue is armed.
//! The poller still publishes its index after each poll, because other threads read it
//! ([`Entries::written_end`](super::Entries::written_end)), but in a word that the device
//! never reads. So both kinds of rings are polled by the same instructions.
//!
//! The record is written where no poll pays for it: at the end of each lap, on the branch
//! that wraps the ring, and before each arm. A consumer index has 24 bits, of which half
//! must be left to compare two of them. The record may lag by [`MOST_LAG`] completions.
//!
//! Decision: `docs/decisions/073-lazy-consumer-record.md`

use core::ptr::NonNull;

use super::CompletionRing;
use crate::layout::{CompletionLayout, LayoutError};
use crate::mmio::{DoorbellRecord, barrier};

/// The most completions that a poller consumes without writing the doorbell record.
const MOST_LAG: u32 = 1 << 22;

/// The most entries of a ring of [`CompletionRing::new_lazy`]: the record is written once per
/// lap, by a run of entries with the index at which the run began, which is less than a
/// lap behind.
pub const MOST_LAZY_ENTRIES: u32 = MOST_LAG / 2;

/// Writes the consumer index for the device. Entries before it may then be overwritten.
#[inline(always)]
pub(super) fn write_record(record: DoorbellRecord, consumer: u32) {
    barrier::before_release();
    record.set(consumer & 0xff_ffff);
}

impl CompletionRing {
    /// Returns the ring as [`Self::new`] does. Its [`publish`](Self::publish) stores the
    /// consumer index in `consumer`, in the format of a doorbell record. The record of the
    /// layout is written once per lap and by [`arm`](Self::arm).
    ///
    /// The completion queue must ignore overruns, and the requests that can complete in it
    /// must be fewer than its entries: completions are lost otherwise.
    ///
    /// # Errors
    /// The layout is inconsistent, or has more than [`MOST_LAZY_ENTRIES`].
    ///
    /// # Safety
    /// As for [`Self::new`]; and `consumer` is valid as long as the layout's memory, and
    /// written by this ring only.
    pub unsafe fn new_lazy(
        layout: &CompletionLayout,
        consumer: NonNull<u32>,
    ) -> Result<Self, LayoutError> {
        if layout.cqe_count > MOST_LAZY_ENTRIES {
            return Err(LayoutError(
                "the CQE count is above 2^21, the most with a lazy doorbell record",
            ));
        }
        // SAFETY: required of the caller.
        let mut ring = unsafe { Self::new(layout) }?;
        // SAFETY: required of the caller.
        unsafe { ring.publish_in(consumer) };
        Ok(ring)
    }

    /// Publishes the consumer index in `consumer` from now on.
    ///
    /// # Safety
    /// As for [`Self::new_lazy`].
    pub(super) unsafe fn publish_in(&mut self, consumer: NonNull<u32>) {
        write_record(self.record, self.consumed());
        self.is_lazy = true;
        // SAFETY: required of the caller.
        self.entries.consumer = unsafe { DoorbellRecord::new(consumer) };
        self.publish();
    }
}
