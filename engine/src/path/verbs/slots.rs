//! The two free-running counters that poster and poller of a queue share.
//!
//! The requests `retired..posted` are outstanding. The poster counts a request
//! before it is passed to the device, so every completion is of a counted request.

use core::sync::atomic::{AtomicU32, Ordering};

/// The counters of a queue whose requests complete in order.
#[derive(Debug, Default)]
pub(super) struct Slots {
    posted: AtomicU32,
    retired: AtomicU32,
}

impl Slots {
    /// Stores the posted counter: the requests before `end` are posted, or are
    /// being posted. Called by the poster.
    #[inline]
    pub(super) fn set_posted(&self, end: u32) {
        // Release: publishes what was recorded of the requests.
        self.posted.store(end, Ordering::Release);
    }

    /// Returns the retired counter.
    #[inline]
    pub(super) fn retired(&self) -> u32 {
        // Acquire: the poller has read what was recorded of the retired requests.
        self.retired.load(Ordering::Acquire)
    }

    /// Returns the number of requests that are posted and not retired. Exact while
    /// no thread posts or polls.
    pub(super) fn outstanding(&self) -> u32 {
        let retired = self.retired.load(Ordering::Relaxed);
        self.posted.load(Ordering::Relaxed).wrapping_sub(retired)
    }

    /// Returns the numbers of the requests that are posted and not retired. Exact
    /// while no thread posts or polls.
    pub(super) fn waiting(&self) -> impl Iterator<Item = u32> + use<> {
        let retired = self.retired.load(Ordering::Relaxed);
        // Acquire: what was recorded of the requests can be read.
        let posted = self.posted.load(Ordering::Acquire);
        (0..posted.wrapping_sub(retired)).map(move |at| retired.wrapping_add(at))
    }

    /// Returns whether request `slot` is outstanding. Called by the poller.
    #[inline]
    pub(super) fn has(&self, slot: u32) -> bool {
        let retired = self.retired.load(Ordering::Relaxed);
        // Acquire: what was recorded of the request can be read.
        let posted = self.posted.load(Ordering::Acquire);
        slot.wrapping_sub(retired) < posted.wrapping_sub(retired)
    }

    /// Returns whether request `slot` is outstanding and all before it are retired.
    /// Called by the poller.
    #[inline]
    pub(super) fn is_oldest(&self, slot: u32) -> bool {
        self.has(slot) && slot == self.retired.load(Ordering::Relaxed)
    }

    /// Retires the outstanding request `slot` and all before it.
    #[inline]
    pub(super) fn retire(&self, slot: u32) {
        // Release: what was recorded of them has been read.
        self.retired.store(slot.wrapping_add(1), Ordering::Release);
    }
}

#[cfg(test)]
impl Slots {
    /// Returns counters as after `count` requests were posted and retired.
    pub(super) fn starting_at(count: u32) -> Self {
        Self {
            posted: AtomicU32::new(count),
            retired: AtomicU32::new(count),
        }
    }
}
