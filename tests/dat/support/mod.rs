//! What the tests share: an adapter on the stepped device, memory, connected
//! endpoints, and calls that check their answers.

mod bed;
mod calls;
mod memory;
mod pair;

pub use bed::{Bed, Turning};
pub use calls::*;
pub use memory::Memory;
pub use pair::{End, Pair, Shape};
