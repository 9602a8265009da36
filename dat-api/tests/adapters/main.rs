//! Tests of adapters, zones, memory regions and names, on the emulated NIC, which runs in this
//! process on a thread of its own. The tests take turns: they count descriptors and threads, and
//! change the environment.

#![allow(unreachable_pub, reason = "a test binary has no interface")]

mod attributes;
mod closing;
mod events;
mod fork;
mod memory;
mod opening;
mod promises;
mod rdma_cm;
mod setup;
// The fixture that the tests of endpoints use as well.
#[allow(dead_code, reason = "some of it is for other tests")]
#[path = "../device/fixture.rs"]
mod fixture;
