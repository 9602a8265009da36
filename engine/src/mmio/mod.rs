//! The only home of barriers, volatile accesses, doorbell records and registers.

pub mod barrier;
mod biased;
mod cell;
mod register;

pub use biased::BiasedLock;
pub use cell::{DmaCell, DoorbellRecord};
pub use register::{ArmRegister, BlueFlame, Register};
