//! Send, receive, shared receive and completion rings in memory.
//!
//! Each ring comes in two halves. The *producer* belongs to whoever posts and
//! is used through `&mut`; the *consumer* belongs to whoever polls the
//! completion queue. They may be on different threads: what both touch are
//! atomics (one counter of retired requests, and the cookies), and neither
//! waits for the other.
//!
//! Where the rings lie is data ([`layout`]); nothing here knows of verbs, so a
//! test can lay a ring into ordinary memory. What is written, and in which
//! order, is what libmlx5 writes for the same request.

pub mod complete;
mod cursor;
mod free_set;
pub mod layout;
pub mod receive;
pub mod recv_wqe;
pub(crate) mod scatter;
pub mod send;
pub mod shared;
#[cfg(test)]
pub(crate) mod testing;
mod units;

pub use cursor::{Credits, RingSize, distance24};

/// The layout of a ring does not hold together; names the field and the rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayoutError(pub &'static str);

impl core::fmt::Display for LayoutError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(
            f,
            "the provider exported a ring that the engine cannot drive: {}",
            self.0
        )
    }
}

impl core::error::Error for LayoutError {}
