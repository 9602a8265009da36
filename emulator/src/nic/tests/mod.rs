//! The NIC driven by hand: rings in plain memory, packets in a queue, time
//! as a number.

mod arm;
mod atomic;
mod bad_wire;
mod completion;
mod connection;
mod control;
mod datagram;
mod doorbells;
mod errors;
mod garbage;
mod gone;
mod incidents;
mod limits;
mod loss;
mod receive;
mod resize;
mod rig;
mod unreliable;
mod window;
mod wire;
