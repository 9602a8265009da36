//! Whole-system tests: the engine and libmlx5 on the emulated NIC, in one
//! process, stepped by hand.

#[path = "../support/mod.rs"]
mod support;

mod tracer;
