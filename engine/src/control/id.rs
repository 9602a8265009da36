//! Ids of verbs objects, which are never reused.

use core::num::NonZeroUsize;
use core::sync::atomic::{AtomicUsize, Ordering};

/// The id of one object for the lifetime of the process. QP numbers and addresses
/// are reused soon after an object is destroyed; ids are not, so a late event
/// cannot be attributed to a successor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ObjectId(NonZeroUsize);

impl ObjectId {
    pub(super) fn next() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Self(NonZeroUsize::new(id).expect("a process does not create 2^64 objects"))
    }

    /// Returns the id as the context pointer of an object in libibverbs. The
    /// pointer is never dereferenced.
    pub(super) fn to_context(self) -> *mut core::ffi::c_void {
        core::ptr::without_provenance_mut(self.0.get())
    }

    pub(super) fn from_context(context: *mut core::ffi::c_void) -> Option<Self> {
        NonZeroUsize::new(context.addr()).map(Self)
    }
}
