//! mlx5 rings.

#![deny(missing_docs)]

pub mod complete;
mod cursor;
mod free_set;
pub mod layout;
pub mod mmio;
pub mod receive;
mod recv_wqe;
pub mod request;
pub mod scatter;
pub mod send;
pub mod shared;
pub mod status;
pub mod sync;
#[cfg(test)]
mod testing;
mod units;
pub mod wire;

pub(crate) use cursor::distance24;
pub use cursor::{Credits, RingSize};
pub use recv_wqe::PostReceives;
