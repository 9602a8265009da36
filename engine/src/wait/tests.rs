//! Waits step by step on a simulated platform, and with real threads and signals.

use core::time::Duration;

use super::protocol::Platform;
use super::*;

mod endless;
mod halted;
mod one_processor;
mod real;
mod scripted;

/// Returns a policy that spins for exactly `nanos` nanoseconds.
fn spin_for(nanos: u64) -> WaitPolicy {
    WaitPolicy::Adaptive {
        min: Duration::from_nanos(nanos),
        max: Some(Duration::from_nanos(nanos)),
    }
}
