//! Ways to the device. [`direct`] drives the rings itself.

pub mod direct;
