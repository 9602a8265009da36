//! The atomics and locks of [`super::protocol`]; loom's in the model.

pub(super) use core::sync::atomic::{AtomicUsize, Ordering};
