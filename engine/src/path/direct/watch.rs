//! Reading the state of a queue pair's rings from any thread.

use std::sync::Arc;

use super::record::{Receives, Record};

/// Reads the rings of a queue pair until it is reset, with relaxed loads of words
/// that posting and polling store anyway. Exact while neither happens.
#[derive(Clone, Debug)]
pub struct Watch(pub(super) Arc<Record>);

impl Watch {
    /// Returns whether every posted send was retired.
    pub fn sends_idle(&self) -> bool {
        self.0.sends.is_idle()
    }

    /// Returns a number that changes when sends are retired.
    pub fn sends_retired(&self) -> u32 {
        self.0.sends.retired()
    }

    /// Returns the number of receives in its own queue that were posted and not
    /// retired.
    pub fn recvs_outstanding(&self) -> u32 {
        match &self.0.receives {
            Receives::Own(ring) => ring.outstanding(),
            Receives::Shared(_) | Receives::None => 0,
        }
    }
}
