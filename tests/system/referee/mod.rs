//! libmlx5 as the referee: what it and the engine make of the same must be
//! the same.

mod arms;
mod binds;
mod completion_queues;
mod memory;
mod polls;
mod posts;
mod versions;
mod windows;
