//! What the measuring loops need of a connected queue pair, and no more.
//!
//! A trait, so that the loops can be proved without a device; generic in the
//! loops, so that a call of it is a call of the engine.

use dat_engine::{Completion, PostError};

/// One side's end of the connection, prepared for one operation and size.
pub(super) trait Link {
    /// Posts a receive for a message of any size of this run.
    fn post_receive(&mut self) -> Result<(), PostError>;

    /// Posts the operation of this run.
    fn post(&mut self, signaled: bool) -> Result<(), PostError>;

    /// Takes one completion of the send queue.
    fn poll_sent(&mut self) -> Option<Completion>;

    /// Takes one completion of the receive queue.
    fn poll_received(&mut self) -> Option<Completion>;

    /// Puts a sequence number into the last byte of what the next write carries.
    fn stamp(&mut self, sequence: u8);

    /// The last byte of the memory that the other side writes, as it is now.
    fn arrived(&self) -> u8;
}
