//! Rings, registers and paths are the engine's own.

use dat_engine::mmio::DmaCell;
use dat_engine::path::direct::Poller;
use dat_engine::ring::receive::RecvConsumer;
use dat_engine::wire::Cqe;

fn main() {}
