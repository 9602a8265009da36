//! How many objects there are: what is left behind shows.

use super::adapter::Nic;

/// The objects of a NIC, of all its devices and contexts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Open devices.
    pub contexts: usize,
    /// Protection domains.
    pub pds: usize,
    /// Memory regions and windows.
    pub keys: usize,
    /// Completion queues.
    pub cqs: usize,
    /// Shared receive queues.
    pub srqs: usize,
    /// Queue pairs.
    pub qps: usize,
}

impl Nic {
    /// Counts the objects.
    #[must_use]
    pub fn census(&self) -> Census {
        Census {
            contexts: self.core.contexts.len(),
            pds: self.core.pds.len(),
            keys: self.core.mrs.len(),
            cqs: self.core.cqs.len(),
            srqs: self.core.srqs.len(),
            qps: self.qps.len(),
        }
    }
}
