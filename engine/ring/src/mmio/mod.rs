//! All barriers, volatile accesses, doorbell records and doorbell registers.
//!
//! The doorbell registers themselves are private: [`crate::send::SendProducer`]
//! rings the register of its queue pair, [`crate::complete::CompletionRing`] that
//! of its completion queue.

pub mod barrier;
mod cell;
mod copy;
mod prefetch;
mod register;

pub use cell::{DmaCell, DoorbellRecord};
pub(crate) use copy::{SHORT_COPY, read_short, write_short};
pub use copy::{read_message, write_message};
pub use prefetch::prefetch;
pub(crate) use register::{ArmRegister, BlueFlame, Register};
