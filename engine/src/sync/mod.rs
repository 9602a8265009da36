//! Locks, and how threads wait for each other.
//!
//! - [`Mutex`], [`RwLock`] and [`Condvar`] are `std`'s without poisoning: the
//!   locks of the control path.
//! - [`SpinLock`] is for a few instructions at a time, on the data path of
//!   threadsafe adapters.
//! - [`Backoff`] is the loop that waits for another thread to finish something
//!   short: [`SpinLock`]'s, and every other.
//!
//! The last two are those of the rings.

mod poisonless;

pub use mlx5_rings::sync::{Backoff, SpinGuard, SpinLock};
pub use poisonless::{Condvar, Mutex, RwLock};
pub use std::sync::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};
