//! Tests of the NIC without uverbs commands, threads or a clock: the rings are in
//! plain memory, the fabric is a queue of packets, and time is a number.

mod arm;
mod atomic;
mod completion;
mod connection;
mod control;
mod counters;
mod datagram;
mod doorbells;
mod errors;
mod explanations;
pub(crate) mod fixtures;
mod garbage;
mod incidents;
mod limits;
mod loss;
mod nasty;
mod receive;
mod residency;
mod resize;
mod roce;
mod unmapped;
mod unreliable;
mod window;
