//! The NIC as a state machine: doorbells, packets and the time go in;
//! packets, CQEs and events come out.
//!
//! There are no threads and no clock here, and not a byte of uverbs. The
//! caller locks a [`Nic`], feeds it and lets it `Nic::work`. Host memory
//! is touched through `memory` only, WQE and CQE bytes are understood by
//! [`crate::decode`] only.
//!
//! ```text
//!  doorbell ──▶ doorbell.rs ─▶ requester ──▶ packets      packets ──▶ responder ─▶ answers
//!                               ▲   │                                   │
//!              answers ─────────┘   └──▶ cq.rs (CQE, event) ◀───────────┘
//! ```
//!
//! What gives the NIC addresses (queues, regions, doorbells) is this crate's own:
//! the NIC writes wherever it was told to.
//!
//! The requester takes WQEs from a send ring, cuts them into packets and
//! retires them when the responder has answered; the responder places
//! packets into memory and answers. Both serve the reliable connection, the
//! unreliable connection and datagrams as the InfiniBand architecture has
//! them (IBA vol. 1, chapter 9).

mod adapter;
mod census;
mod clock;
mod core;
mod cq;
mod cq_arm;
mod cq_resize;
mod doorbell;
mod flush;
mod gather;
mod grh;
mod incidents;
pub(crate) mod memory;
mod mr;
mod number;
mod options;
mod pd;
mod pin;
mod psn;
mod qp;
mod qp_attributes;
mod qp_modify;
mod receive_queue;
mod requester;
mod responder;
pub mod spec;
mod srq;
mod timers;
mod violations;
mod window;

pub use adapter::Nic;
pub use census::Census;
pub use clock::ticks;
pub use options::{
    CompletionFate, Identify, Mishaps, Nanos, NicOptions, Progress, Resolver, Trace,
};
pub use violations::Violations;

#[cfg(test)]
mod tests;
