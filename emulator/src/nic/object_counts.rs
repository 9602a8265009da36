//! Object counts, with which tests detect leaks.

use super::adapter::Nic;

/// The numbers of objects of a NIC, of all its devices and contexts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObjectCounts {
    /// Contexts.
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
    pub fn object_counts(&self) -> ObjectCounts {
        ObjectCounts {
            contexts: self.core.contexts.len(),
            pds: self.core.pds.len(),
            keys: self.core.mkeys.len(),
            cqs: self.core.cqs.len(),
            srqs: self.core.srqs.len(),
            qps: self.qps.len(),
        }
    }
}
