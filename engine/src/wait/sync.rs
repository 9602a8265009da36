//! The atomics of [`super::word`], which the model checker replaces by its own.

pub(super) use core::sync::atomic::{AtomicU32, Ordering, fence};
