//! The direct path: the engine writes WQEs and reads CQEs itself.
//!
//! [`Poller`] polls a completion queue, [`QueuePair`] posts to a queue pair,
//! [`SharedReceives`] posts to a shared receive queue. They share the record of
//! each queue pair (`record.rs`), which has what polling needs of it.
//!
//! **Threads.** Posting needs `&mut` of the poster, polling `&mut` of the poller.
//! They may run on different threads and share only atomics. Queue pairs are
//! attached and detached through the [`CqCommandQueue`] of each completion queue. The
//! poller processes its commands when it finds no CQE, or a CQE of an unknown queue
//! pair.
//!
//! **Reuse of QP numbers.** A queue pair that is destroyed or reset marks its
//! record and its places in the tables, so that polling no longer finds it, and sends a command with the end of
//! the CQEs that it can have written. The poller invalidates those stale CQEs and
//! releases their shared receives. Only then does it drop the record; the last
//! reference to the record destroys the queue pair and frees its number.
//!
//! Decision: `docs/decisions/008-qp-number-outlives-its-cqes.md`

mod command_queue;
mod cqe_ref;
mod decode;
mod hot_qp;
mod poller;
mod queue_pair;
mod record;
mod run;
mod shared;
mod table;
mod watch;

#[cfg(test)]
mod tests;

pub use command_queue::CqCommandQueue;
pub use cqe_ref::{CqeKind, CqeRef};
pub use poller::Poller;
pub use queue_pair::{QueuePair, QueuePairParts};
pub use shared::{SharedReceives, SharedReceivesHandle};
pub use watch::Watch;

use std::sync::Arc;

/// The owner of a ring's memory. Dropping the last reference destroys the queue.
pub type Owner = Arc<dyn Send + Sync>;
