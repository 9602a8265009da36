//! Tests of endpoints, shared receive queues, service points and connections, on the emulated NIC,
//! which runs in this process on a thread of its own; or on the device that `DAT_TEST_DEVICE`
//! names. A test's name carries the number of the requirement that it proves.

#![allow(unreachable_pub, reason = "a test binary has no interface")]

mod attributes;
mod connecting;
mod disconnecting;
mod fixture;
mod iwarp;
mod posting;
mod receives;
mod shared;
mod stalled;
mod waiting;
