//! Commands as libibverbs sends them, good and bad, against a machine that
//! only writes down what it is asked.

mod addresses;
mod backend;
mod clock;
mod garbage;
mod ioctls;
mod limits;
mod objects;
mod sender;
mod windows;
mod write;
