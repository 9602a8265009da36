//! The direct path: requests and completions by our own hands.
//!
//! [`Poller`] polls a completion queue, [`QueuePair`] posts to a queue pair,
//! [`SharedReceives`] to a shared receive queue. They meet in the
//! record (`record.rs`): what polling must know of a queue pair.
//!
//! **Threads.** Posting needs `&mut` of the poster, polling `&mut` of the
//! poller; they may be different threads and share only atomics. Queue pairs
//! come and go through the [`Mailbox`] of each completion queue, which the
//! poller empties when it meets a completion that it cannot place, or none.
//!
//! **A number comes back.** A queue pair that goes (destroyed or reset) marks
//! its record, so that polling no longer finds it, and mails the end of what it
//! can have written. The poller crosses those completions out and gives their
//! shared receives back; only then does it let go of the record, and with the
//! last record goes the verbs object and its number.

mod cqe_ref;
mod decode;
mod mailbox;
mod poller;
mod queue_pair;
mod record;
mod run;
mod shared;
mod table;
mod watch;

#[cfg(test)]
mod tests;

pub use cqe_ref::{CqeKind, CqeRef};
pub use mailbox::Mailbox;
pub use poller::Poller;
pub use queue_pair::{QueuePair, QueuePairParts};
pub use shared::{SharedReceives, SharedReceivesHandle};
pub use watch::Watch;

use std::sync::Arc;

/// What a ring's memory belongs to; dropping the last one destroys it.
pub type Owner = Arc<dyn Send + Sync>;
