//! What any thread may ask of a queue pair's rings.

use std::sync::Arc;

use super::record::{Receives, Record};

/// Looks at the rings of a queue pair, until it is reset, with relaxed loads of
/// what posting and polling store anyway. Exact when neither happens meanwhile.
#[derive(Clone, Debug)]
pub struct Watch(pub(super) Arc<Record>);

impl Watch {
    /// Whether every send that was posted has been retired.
    pub fn sends_idle(&self) -> bool {
        self.0.sends.is_idle()
    }

    /// Receives of its own queue that were posted and not retired.
    pub fn recvs_outstanding(&self) -> u32 {
        match &self.0.receives {
            Receives::Own(ring) => ring.outstanding(),
            Receives::Shared(_) | Receives::None => 0,
        }
    }
}
