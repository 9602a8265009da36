//! Locks and waiting between threads.
//!
//! - [`Mutex`], [`RwLock`] and [`Condvar`] are those of `std` without poisoning:
//!   the locks of the control path.
//! - [`SpinLock`] protects a few instructions on the data path of threadsafe
//!   adapters.
//! - [`Backoff`] is the loop that waits until another thread has finished a short
//!   operation; [`SpinLock`] uses it too.
//!
//! The last two are re-exported from [`mlx5_rings`].

mod poisonless;

pub use mlx5_rings::sync::{Backoff, SpinGuard, SpinLock};
pub use poisonless::{Condvar, Mutex, RwLock};
pub use std::sync::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};
