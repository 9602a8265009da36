//! `dat-bench` as a process, most of it on the emulated device.

mod apis;
mod bw;
mod checked;
mod cli;
mod common;
mod compare;
mod cost;
mod diff;
mod emulated;
mod killed;
mod last_byte;
mod open;
mod output;
mod perftest;
mod profiles;
mod report;
mod scale;
mod wake;
