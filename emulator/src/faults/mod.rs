//! Faults on demand: what goes wrong, when, and how often.
//!
//! ```text
//!  "seed=7,drop=0.01,kill-qp@500" ──spec──▶ FaultSpec ──▶ Decisions (seed, kind, n) → yes or no
//!                                                          │                  │
//!        NIC ──packets──▶ wire: lost, doubled, held ──▶ port   NIC ◀── mishaps (receives, completions)
//! ```
//!
//! Whether the n-th packet, receive or completion is hit depends on the seed,
//! the kind of fault and n, and on nothing else ([`decisions`]). So stepped by
//! hand a seed repeats a run exactly; with threads, where packets may come in
//! another order, it repeats the decisions. Neither the NIC nor the fabric
//! knows chance: the wire stands between them, and the NIC asks for what
//! happens to it ([`crate::nic::Mishaps`]).

pub mod decisions;
pub mod mishaps;
pub mod spec;
pub mod wire;

pub use spec::FaultSpec;
