//! Fault injection: what goes wrong, when, and how often.
//!
//! ```text
//!  "seed=7,drop=0.01,kill-qp@500" ──spec──▶ FaultSpec ──▶ Decisions (seed, kind, n) → hit or not
//!                                                          │                  │
//!     NIC ──packets──▶ FaultyWire: drop, dup, delay ──▶ port    NIC ◀── nic_faults (receives, completions)
//! ```
//!
//! Whether a fault hits the n-th packet, receive or completion depends only on
//! the seed, the kind of fault and n ([`decisions`]). In stepped mode a seed
//! therefore repeats a run exactly; with threads, where the order of packets
//! may vary, it repeats the decisions. Neither the NIC nor the fabric contains
//! randomness: the faulty wire lies between them, and the NIC queries a
//! [`FaultInjector`](crate::nic::FaultInjector) for its own faults.

pub mod decisions;
pub mod nic_faults;
pub mod spec;
pub mod wire;

pub use spec::FaultSpec;

#[cfg(test)]
mod lossy_stream_tests;
