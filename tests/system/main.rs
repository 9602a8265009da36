//! Whole-system tests: the engine and libmlx5 on the emulated NIC in one process,
//! stepped by the test; or the engine on the device that `DAT_TEST_DEVICE` names.

#![allow(unreachable_pub, reason = "a test binary has no interface")]

#[path = "../support/mod.rs"]
mod support;

mod atomics;
mod control;
mod conversation;
mod data_in_order;
mod direct;
mod failures;
mod handles;
mod incidents;
mod nasty;
mod numa;
mod queues;
mod recycling;
mod referee;
mod schedules;
mod stamps;
mod tracer;
