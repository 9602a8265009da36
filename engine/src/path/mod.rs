//! The data paths. [`direct`] reads and writes the rings itself; [`verbs`] uses
//! libibverbs. A device's path is chosen when the device is opened.
//!
//! Endpoints and queues hold an enum of the two (`either.rs`). On the direct path
//! the comparison of its discriminant is the only cost of having two paths.

mod arrival;
pub mod direct;
mod either;
pub mod verbs;

pub use arrival::Arrival;
pub(crate) use either::{CqSide, Poller, QueuePair, SharedReceives, SrqSide, Watch};

/// CQEs that polling has skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PollerCounters {
    /// CQEs of unknown queue pairs, or with an opcode that no request of the engine
    /// has.
    pub unknown: u64,
    /// CQEs of queue pairs that were destroyed or reset.
    pub stale: u64,
}
