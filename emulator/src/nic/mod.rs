//! The NIC as a state machine: doorbells, packets and the time go in; packets,
//! CQEs and events come out.
//!
//! This module contains no threads, no clock and no uverbs formats. The caller
//! locks a [`Nic`], passes input to it and calls `Nic::work`. Host memory is
//! accessed only through `memory`, and WQE and CQE bytes are decoded and encoded
//! only by [`crate::decode`].
//!
//! ```text
//!  doorbell ──▶ doorbell.rs ─▶ requester ──▶ packets      packets ──▶ responder ─▶ responses
//!                               ▲   │                                   │
//!            responses ─────────┘   └──▶ cq.rs (CQE, event) ◀───────────┘
//! ```
//!
//! The requester takes WQEs from a send ring, splits them into packets, and
//! completes them when the responder has responded. The responder places packets
//! into memory and responds. Both implement reliable connections, unreliable
//! connections and unreliable datagrams as the InfiniBand architecture specifies
//! them (IBA vol. 1, chapter 9).
//!
//! All addresses (queues, regions, doorbells) come from this crate. The NIC does
//! not check them further.
//!
//! Some errors have no completion: a doorbell record or ring that cannot be read, a record that
//! announces more requests than the ring holds, a CQE for which the ring has no room. Then the queue
//! pair goes to the error state with `IBV_EVENT_QP_FATAL`, and the SRQ or completion queue fails with
//! its own event, so no program waits for ever.
//!
//! Decision: `docs/decisions/045-no-clock-in-the-nic.md`

mod adapter;
mod clock;
mod core;
pub(crate) mod counters;
mod cq;
mod cq_arm;
mod cq_resize;
mod doorbell;
mod failures;
mod flush;
mod grh;
mod guest_keys;
mod incidents;
mod late;
pub mod memory;
mod mr;
mod number;
mod object_counts;
mod options;
mod parts;
mod pd;
mod pin;
mod poison;
mod psn;
mod qp;
mod qp_attributes;
mod qp_modify;
mod receive_queue;
mod requester;
pub(crate) mod resources;
mod responder;
mod scatter_gather;
mod srq;
mod timers;
mod violations;
mod window;

pub use adapter::Nic;
pub use clock::ticks;
pub use guest_keys::{Memory, Translator};
pub use object_counts::ObjectCounts;
pub(crate) use options::earlier;
pub use options::{CompletionOutcome, FaultInjector, Identify, NicOptions, Progress, Resolver};
pub use violations::Violations;

#[cfg(fuzzing)]
#[path = "tests/fuzzing.rs"]
pub(crate) mod fuzzing;
#[cfg(test)]
pub(crate) mod tests;
