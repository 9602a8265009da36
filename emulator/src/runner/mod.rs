//! What drives the NIC: the NIC thread, an application thread whose doorbell
//! store was trapped, or a test that steps it.
//!
//! ```text
//!  doorbell pages ─scan─┐
//!  fabric ─────packets──┼─▶ NIC thread ─┐                      ┌─▶ CQEs, events
//!  control ───────kick──┘               ├─▶ SharedNic (locked) ┤
//!  trapped stores ─▶ application's thread ┘   NIC, port         └─▶ packets ─▶ fabric
//!                                                │                 (peers are woken
//!    spin, nap or sleep (wait_policy.rs) ◀───────┘                  after unlocking)
//! ```
//!
//! Decision: `docs/decisions/045-no-clock-in-the-nic.md`

mod ack_timer;
mod control;
mod placement;
mod scheduling;
pub mod shared_nic;
pub mod stepped;
pub mod thread;
pub mod trapped_stores;
mod wait_policy;

pub use control::Control;
pub(crate) use scheduling::{SignalsBlocked, configure_nic_thread};

use crate::fabric::port::Port;
use crate::nic::{Progress, ticks};
use crate::spec::{Nanos, UarWrite, WallClock};

/// A NIC as the runners see it.
pub trait Driver {
    /// Takes these doorbells, then packets that the port has received, and works,
    /// within the budget. The result has `worked` if there may be more to do at once.
    fn run(
        &mut self,
        doorbells: &[UarWrite],
        port: &mut Port,
        now: Nanos,
        budget: Budget,
    ) -> Progress;
    /// Sends the last packets, before the process leaves the fabric.
    fn stop(&mut self, port: &mut Port, now: Nanos) {
        let _ = (port, now);
    }
}

/// How much a NIC does in one run.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Maximum number of rounds. A message between QPs of one process takes three: the
    /// request, the message, the ack.
    pub rounds: usize,
    /// Maximum number of packets received, and of packets sent, in one round.
    pub packets: usize,
}

impl Budget {
    /// One batch: small enough that a control command does not wait long.
    pub const BATCH: Self = Self {
        rounds: 4,
        packets: 64,
    };
    /// At most one packet, and one unit of work.
    pub const STEP: Self = Self {
        rounds: 1,
        packets: 1,
    };
}

/// Returns the monotonic time in nanoseconds, the NIC's clock.
#[must_use]
pub fn now() -> Nanos {
    read_clock(libc::CLOCK_MONOTONIC)
}

/// Returns the current time by the NIC's clock and by the time of day. The time of day is
/// read between two readings of the NIC's clock, several times: the pair with the least time
/// between the two is the most accurate.
#[must_use]
pub fn wall_clock() -> WallClock {
    let read = |_| {
        let before = now();
        let nanoseconds = read_clock(libc::CLOCK_REALTIME);
        let passed = now() - before;
        let device = ticks(before + passed / 2);
        (
            passed,
            WallClock {
                device,
                nanoseconds,
            },
        )
    };
    let first = read(0);
    let closest =
        (1..READINGS).map(read).fold(
            first,
            |closest, next| {
                if next.0 < closest.0 { next } else { closest }
            },
        );
    closest.1
}

/// Number of readings of [`wall_clock`].
const READINGS: u32 = 8;

fn read_clock(clock: libc::clockid_t) -> Nanos {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid timespec; the call writes nothing else, and
    // does not fail for these clocks.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests;
