//! Names for verbs objects that are never used twice.

use core::num::NonZeroUsize;
use core::sync::atomic::{AtomicUsize, Ordering};

/// Names one object for the life of the process. QP numbers and addresses
/// come back soon after an object is gone; these do not, so a late event
/// cannot be taken for one of the successor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ObjectId(NonZeroUsize);

impl ObjectId {
    pub(super) fn next() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Self(NonZeroUsize::new(id).expect("a process does not create 2^64 objects"))
    }

    /// As the context pointer that libibverbs keeps with an object. It is
    /// never dereferenced.
    pub(super) fn to_context(self) -> *mut core::ffi::c_void {
        core::ptr::without_provenance_mut(self.0.get())
    }

    pub(super) fn from_context(context: *mut core::ffi::c_void) -> Option<Self> {
        NonZeroUsize::new(context.addr()).map(Self)
    }
}
