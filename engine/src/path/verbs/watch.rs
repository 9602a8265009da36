//! What any thread may ask of a queue pair.

use core::fmt;
use std::sync::Arc;

use super::device::Device;
use super::record::Record;

/// Looks at the shadows of a queue pair, until it is reset, with relaxed loads
/// of what posting and polling store anyway. Exact when neither happens
/// meanwhile.
pub struct Watch<D: Device>(pub(super) Arc<Record<D>>);

impl<D: Device> Watch<D> {
    /// Whether every send that was posted has been retired.
    pub fn sends_idle(&self) -> bool {
        self.0.sends.slots.outstanding() == 0
    }

    /// Receives of its own queue that were posted and not retired.
    pub fn recvs_outstanding(&self) -> u32 {
        self.0.own.slots.outstanding()
    }

    /// The queue pair will be moved to ERR after this: what is posted from now
    /// on is to be flushed.
    pub fn will_fail(&self) {
        self.0.fails();
    }
}

impl<D: Device> Clone for Watch<D> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<D: Device> fmt::Debug for Watch<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Watch").field(&self.0.qpn).finish()
    }
}
