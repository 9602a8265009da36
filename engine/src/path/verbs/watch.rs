//! What any thread may ask of a queue pair.

use core::fmt;
use std::sync::Arc;

use super::device::Device;
use super::flush::End;
use super::record::Record;

/// Looks at the shadows of a queue pair, until it is reset, with relaxed loads
/// of what posting and polling store anyway. Exact when neither happens
/// meanwhile.
pub struct Watch<D: Device> {
    pub(super) record: Arc<Record<D>>,
    /// Where it reports, if not all is flushed by the device.
    pub(super) ends: Option<[End<D>; 2]>,
}

impl<D: Device> Watch<D> {
    /// Whether every send that was posted has been retired.
    pub fn sends_idle(&self) -> bool {
        self.record.sends.slots.outstanding() == 0
    }

    /// Receives of its own queue that were posted and not retired.
    pub fn recvs_outstanding(&self) -> u32 {
        self.record.own.slots.outstanding()
    }

    /// The queue pair will be moved to ERR after this: what is posted from now
    /// on is to be flushed.
    pub fn will_fail(&self) {
        self.record.fails();
    }

    /// The queue pair is in ERR: what its device does not flush is.
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
