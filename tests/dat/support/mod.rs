//! What the tests share: an adapter on the stepped device, memory, connected
//! endpoints, and calls that check their answers.

mod bed;
mod calls;
mod door;
mod memory;
mod pair;
mod queries;
mod srq;
mod tally;

pub use bed::Bed;
pub use calls::*;
pub use door::Door;
pub use memory::Memory;
pub use pair::{End, Pair, Shape};
pub use queries::*;
pub use srq::*;
pub use tally::allocations;
