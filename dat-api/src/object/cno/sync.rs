//! What [`super::protocol`] shares between threads; loom's in the model.

pub(super) use core::sync::atomic::{AtomicUsize, Ordering};
