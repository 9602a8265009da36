//! What poster and poller of one queue share: two free-running counts.
//!
//! Requests have the numbers `retired..posted`. The poster counts a request
//! before the device is told of it, so a completion is always of one that is
//! counted.

use core::sync::atomic::{AtomicU32, Ordering};

/// Counts of a queue whose requests complete in order.
#[derive(Debug, Default)]
pub(super) struct Slots {
    posted: AtomicU32,
    retired: AtomicU32,
}

impl Slots {
    /// The requests before `end` are posted, or about to be: for the poster.
    #[inline]
    pub(super) fn set_posted(&self, end: u32) {
        // Release: what was noted of them is written.
        self.posted.store(end, Ordering::Release);
    }

    /// How many were ever retired.
    #[inline]
    pub(super) fn retired(&self) -> u32 {
        // Acquire: the poller has read what was noted of them.
        self.retired.load(Ordering::Acquire)
    }

    /// Posted and not retired. Exact when nobody posts or polls meanwhile.
    pub(super) fn outstanding(&self) -> u32 {
        let retired = self.retired.load(Ordering::Relaxed);
        self.posted.load(Ordering::Relaxed).wrapping_sub(retired)
    }

    /// The requests that are posted and not retired. Exact as
    /// [`Self::outstanding`].
    pub(super) fn waiting(&self) -> impl Iterator<Item = u32> + use<> {
        let retired = self.retired.load(Ordering::Relaxed);
        // Acquire: what was noted of them is there to be read.
        let posted = self.posted.load(Ordering::Acquire);
        (0..posted.wrapping_sub(retired)).map(move |at| retired.wrapping_add(at))
    }

    /// Whether request `slot` is outstanding: for the poller.
    #[inline]
    pub(super) fn has(&self, slot: u32) -> bool {
        let retired = self.retired.load(Ordering::Relaxed);
        // Acquire: what was noted of the request is there to be read.
        let posted = self.posted.load(Ordering::Acquire);
        slot.wrapping_sub(retired) < posted.wrapping_sub(retired)
    }

    /// Whether request `slot` is outstanding, and all before it are retired: for
    /// the poller.
    #[inline]
    pub(super) fn is_oldest(&self, slot: u32) -> bool {
        self.has(slot) && slot == self.retired.load(Ordering::Relaxed)
    }

    /// Retires request `slot`, which is outstanding, and all before it.
    #[inline]
    pub(super) fn retire(&self, slot: u32) {
        // Release: what was noted of them has been read.
        self.retired.store(slot.wrapping_add(1), Ordering::Release);
    }
}

#[cfg(test)]
impl Slots {
    /// As if so many requests had come and gone.
    pub(super) fn starting_at(count: u32) -> Self {
        Self {
            posted: AtomicU32::new(count),
            retired: AtomicU32::new(count),
        }
    }
}
