//! The atomics of [`super::word`], which the loom model replaces.

pub(super) use core::sync::atomic::{AtomicU32, Ordering, fence};
