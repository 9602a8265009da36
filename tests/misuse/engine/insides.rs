//! The data paths are private, and the engine gives out no rings.

use dat_engine::mmio::DmaCell;
use dat_engine::path::direct::Poller;
use dat_engine::ring::receive::RecvConsumer;
use dat_engine::wire::Cqe;

fn main() {}
