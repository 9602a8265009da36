//! Waits step by step on a platform that plays along, and with real threads
//! and signals.

use core::time::Duration;
use std::os::fd::BorrowedFd;

use super::protocol::Platform;
use super::*;

mod one_processor;
mod real;
mod scripted;

/// A policy that spins for so many nanoseconds exactly.
fn spin_for(nanos: u64) -> WaitPolicy {
    WaitPolicy::Adaptive {
        min: Duration::from_nanos(nanos),
        max: Some(Duration::from_nanos(nanos)),
    }
}
