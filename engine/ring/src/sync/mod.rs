//! Locks that are held for a few instructions, and a back-off loop.
//!
//! - [`SpinLock`] guards a doorbell register that several queue pairs ring, and
//!   other critical sections that are shorter than putting a thread to sleep.
//! - [`Backoff`] is the state of a loop that waits for another thread to finish
//!   something short, as in [`SpinLock`].

mod backoff;
mod biased;
mod spin;

pub use backoff::Backoff;
pub(crate) use biased::BiasedLock;
pub use spin::{SpinGuard, SpinLock};
