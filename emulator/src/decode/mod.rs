//! The emulator's own reading of WQE bytes and writing of CQE bytes.
//!
//! Nothing here is shared with the engine: two independent readings of the
//! formats (`mlx5dv.h`, PRM "WQE format" and "CQE format") must agree, with
//! libmlx5 as the referee. Everything works on byte slices; host memory is
//! the business of [`crate::nic`].

pub mod address;
pub mod cqe;
pub mod doorbell;
pub mod text;
pub mod umr;
pub mod wqe;
