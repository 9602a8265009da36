//! The only home of barriers, volatile accesses, doorbell records and registers.

pub mod barrier;
mod biased;
mod cell;
mod copy;
mod register;

pub use biased::BiasedLock;
pub use cell::{DmaCell, DoorbellRecord};
pub(crate) use copy::{SHORT_COPY, read_short};
pub use copy::{read_message, write_message};
pub use register::{ArmRegister, BlueFlame, Register};
