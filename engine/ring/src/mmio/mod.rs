//! All barriers, accesses to shared memory, doorbell records and doorbell registers.
//!
//! The doorbell registers themselves are private: [`crate::send::SendProducer`]
//! rings the register of its queue pair, [`crate::complete::CompletionRing`] that
//! of its completion queue.

pub mod barrier;
mod cell;
mod copy;
mod prefetch;
mod register;

pub use cell::{DmaCell, DoorbellRecord, Word};
pub use copy::{MessageValue, load_message, read_message, store_message, write_message};
pub(crate) use copy::{SHORT_COPY, read_short, write_short};
pub use prefetch::prefetch;
pub(crate) use register::{ArmRegister, BlueFlame, Register};
