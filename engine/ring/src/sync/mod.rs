//! Locks that are held for a few instructions, and how threads wait for each
//! other.
//!
//! - [`SpinLock`] guards a doorbell register that several queue pairs ring, and
//!   whatever else takes less time than putting a thread to sleep.
//! - [`Backoff`] is the loop that waits for another thread to finish something
//!   short: [`SpinLock`]'s, and every other.

mod backoff;
mod biased;
mod spin;

pub use backoff::Backoff;
pub(crate) use biased::BiasedLock;
pub use spin::{SpinGuard, SpinLock};
