//! The NIC as a state machine: doorbells, packets and the time go in;
//! packets, CQEs and events come out.

pub mod spec;
