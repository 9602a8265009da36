//! The manager over TCP: its own guarantees.

mod flood;
mod hostile;
mod ports;
mod process;
mod released;
mod streams;
