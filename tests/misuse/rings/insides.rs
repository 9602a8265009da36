//! Only the crate itself rings registers and assembles rings.

use mlx5_rings::mmio::Register;
use mlx5_rings::recv_wqe::PostReceives;
use mlx5_rings::sync::BiasedLock;

fn main() {}
