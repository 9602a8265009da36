//! `dat-check` as a process, on the emulated device and without one.

mod check;
mod common;
mod connect;
mod host;
