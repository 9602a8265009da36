//! The emulator's decoder of WQE bytes and encoder of CQE bytes.
//!
//! No code is shared with the engine: two independent implementations of the formats
//! (`mlx5dv.h`, PRM "WQE format" and "CQE format") must agree, and tests compare both
//! with libmlx5. The code works on byte slices; [`crate::nic`] accesses the host
//! memory.

pub mod address;
pub mod cqe;
pub mod doorbell;
pub mod text;
pub mod umr;
pub mod wqe;
