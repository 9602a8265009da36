//! (under construction)
mod cli;
mod clock;
mod exchange;
mod failure;
mod host;
mod launcher;
mod report;
mod stats;
fn main() {}
