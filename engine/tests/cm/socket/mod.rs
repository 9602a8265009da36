//! The manager over TCP: what only it promises.

mod flood;
mod hostile;
mod ports;
mod process;
mod released;
mod streams;
