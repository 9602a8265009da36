//! Registers are rung, and rings are put together, by the crate alone.

use mlx5_rings::mmio::Register;
use mlx5_rings::recv_wqe::PostReceives;
use mlx5_rings::sync::BiasedLock;

fn main() {}
