//! The shadow of a queue pair's own receive queue. Receives complete in order.

use core::sync::atomic::{AtomicU64, Ordering};

use super::places::Places;
use super::slots::Slots;

/// The `wr_id`s of outstanding receives: written by the poster, read by the poller.
#[derive(Debug)]
pub(super) struct RecvShadow {
    pub(super) slots: Slots,
    capacity: u32,
    wr_ids: Places<AtomicU64>,
}

impl RecvShadow {
    /// Creates a shadow for `capacity` receives, which may be 0.
    pub(super) fn new(capacity: u32) -> Self {
        Self {
            slots: Slots::default(),
            capacity,
            wr_ids: Places::new(capacity),
        }
    }

    pub(super) fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Records the `wr_id` of receive `slot`. Called by the poster, before it
    /// counts the receive.
    #[inline]
    pub(super) fn record(&self, slot: u32, wr_id: u64) {
        self.wr_ids.at(slot).store(wr_id, Ordering::Relaxed);
    }

    /// Retires receive `slot`. Called by the poller. Returns its `wr_id`, or `None`
    /// if it is not outstanding.
    #[inline]
    pub(super) fn retire(&self, slot: u32) -> Option<u64> {
        if !self.slots.has(slot) {
            return None;
        }
        let wr_id = self.wr_ids.at(slot).load(Ordering::Relaxed);
        self.slots.retire(slot);
        Some(wr_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receives_are_retired_once_and_in_order() {
        let shadow = RecvShadow::new(3);
        for (slot, wr_id) in (0..3).zip([70, 71, 72]) {
            shadow.record(slot, wr_id);
        }
        shadow.slots.set_posted(3);
        assert_eq!(shadow.slots.outstanding(), 3);
        assert_eq!(shadow.retire(0), Some(70));
        assert_eq!(shadow.retire(0), None);
        assert_eq!(shadow.retire(3), None);
        shadow.record(3, 73);
        shadow.slots.set_posted(4);
        for wr_id in 71..74u64 {
            assert_eq!(shadow.retire(wr_id as u32 - 70), Some(wr_id));
        }
        assert_eq!(shadow.slots.outstanding(), 0);
    }
}
