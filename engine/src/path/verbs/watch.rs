//! Reading the state of a queue pair from any thread.

use core::fmt;
use std::sync::Arc;

use super::device::Device;
use super::flush::End;
use super::record::Record;

/// Reads the shadows of a queue pair until it is reset, with relaxed loads of words
/// that posting and polling store anyway. Exact while neither happens.
pub struct Watch<D: Device> {
    pub(super) record: Arc<Record<D>>,
    /// Where its queues report, if the device does not flush everything itself.
    pub(super) ends: Option<[End<D>; 2]>,
}

impl<D: Device> Watch<D> {
    /// Returns whether every posted send was retired.
    pub fn sends_idle(&self) -> bool {
        self.record.sends.slots.outstanding() == 0
    }

    /// Returns a number that changes when sends are retired.
    pub fn sends_retired(&self) -> u32 {
        self.record.sends.slots.retired()
    }

    /// Returns the number of receives in its own queue that were posted and not
    /// retired.
    pub fn recvs_outstanding(&self) -> u32 {
        self.record.own.slots.outstanding()
    }

    /// Announces that the queue pair is about to be moved to ERR: requests that are
    /// posted from now on are to be flushed.
    pub fn will_fail(&self) {
        self.record.fails();
    }

    /// Flushes what the device does not flush. The queue pair is in ERR.
    pub fn has_failed(&self) {
        for end in self.ends.iter().flatten() {
            end.flush(&self.record);
        }
    }
}

impl<D: Device> Clone for Watch<D> {
    fn clone(&self) -> Self {
        Self {
            record: Arc::clone(&self.record),
            ends: self.ends.clone(),
        }
    }
}

impl<D: Device> fmt::Debug for Watch<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Watch").field(&self.record.qpn).finish()
    }
}
