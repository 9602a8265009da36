//! Tests of the uverbs commands, valid and invalid, with a backend that records the calls
//! to the NIC.

mod addresses;
mod clock;
mod devx;
mod fixtures;
mod garbage;
mod ioctls;
mod limits;
mod objects;
mod windows;
mod write;
