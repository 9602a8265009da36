//! A kernel-bypass RDMA engine: mlx5 rings driven directly, verbs for control.

pub mod ring;
