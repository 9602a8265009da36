//! Packets between NICs: in one process, and over shared memory.

pub mod name;
pub mod packet;
