//! What makes the NIC move: a thread of its own, an application's thread
//! whose store was trapped, or the caller step by step.
//!
//! ```text
//!  doorbell pages ─scan─┐
//!  fabric ─────packets──┼─▶ NIC thread ─┐                      ┌─▶ CQEs, events
//!  control ───────kick──┘               ├─▶ Station (locked) ──┤
//!  trapped stores ─▶ application's thread ┘   NIC, port         └─▶ packets ─▶ fabric
//!                                                │                    (bells rung
//!          spin, nap or sleep (waiting.rs) ◀─────┘                     unlocked)
//! ```

mod control;
mod patience;
mod placement;
mod scheduling;
pub mod serve;
pub mod station;
pub mod stepped;
pub mod thread;
mod waiting;

pub use control::Control;

use crate::fabric::port::Port;
use crate::nic::spec::UarWrite;
use crate::nic::{Nanos, Progress};

/// The NIC as those see it who move it: something to run for one batch.
pub trait Driver {
    /// Takes these doorbells and what the port has received, and works.
    fn run(&mut self, doorbells: &[UarWrite], port: &mut Port, now: Nanos) -> Progress;
}

/// Packets taken in one batch, and packets sent in one: short enough that a
/// control command does not wait long.
pub const BATCH: usize = 64;

/// `CLOCK_MONOTONIC` in nanoseconds.
#[must_use]
pub fn now() -> Nanos {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid timespec; the call writes nothing else, and
    // cannot fail for this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests;
