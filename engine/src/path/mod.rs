//! Ways to the device. [`direct`] drives the rings itself, [`verbs`] leaves
//! them to libibverbs; which it is, a device tells when it is opened.
//!
//! What endpoints and queues hold is one of the two (`either.rs`), told apart
//! by a comparison: on the direct path it is the only cost of there being
//! another. Posts that are compiled for one path are in [`fast`].

mod arrival;
pub mod direct;
mod either;
pub mod fast;
pub mod verbs;

pub use arrival::Arrival;
pub(crate) use either::{CqSide, Poller, QueuePair, SharedReceives, SrqSide, Watch};

/// What polling has met besides completions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PollerCounters {
    /// Completions of nobody that is known, or of no kind that a request of
    /// ours can have. They were skipped.
    pub unknown: u64,
    /// Completions of queue pairs that were destroyed or reset. They were
    /// skipped.
    pub stale: u64,
}
