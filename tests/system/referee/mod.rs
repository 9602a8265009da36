//! libmlx5 as the reference: for the same input, libmlx5 and the engine must
//! produce the same result.

mod arms;
mod binds;
mod completion_queues;
mod memory;
mod polls;
mod posts;
mod versions;
mod windows;
