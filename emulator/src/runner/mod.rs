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
use crate::nic::spec::{UarWrite, WallClock};
use crate::nic::{Nanos, Progress, ticks};

/// The NIC as those see it who move it: something to run for one batch.
pub trait Driver {
    /// Takes these doorbells and what the port has received, and works.
    fn run(&mut self, doorbells: &[UarWrite], port: &mut Port, now: Nanos) -> Progress;
}

/// Packets taken in one batch, and packets sent in one: short enough that a
/// control command does not wait long.
pub const BATCH: usize = 64;

/// Monotonic time, the NIC's.
#[must_use]
pub fn now() -> Nanos {
    read_clock(libc::CLOCK_MONOTONIC)
}

/// The same moment by the NIC's clock and by the time of day.
#[must_use]
pub fn wall_clock() -> WallClock {
    WallClock {
        device: ticks(now()),
        nanoseconds: read_clock(libc::CLOCK_REALTIME),
    }
}

fn read_clock(clock: libc::clockid_t) -> Nanos {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid timespec; the call writes nothing else, and
    // cannot fail for these clocks.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests;
