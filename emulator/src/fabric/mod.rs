//! Packets between NICs: in one process, and over shared memory.

pub mod packet;
