//! Memory windows: keys that a queue pair opens for a part of a region, and
//! closes again, without a command to the kernel.
//!
//! They are of type 1 (InfiniBand 10.6.7.2.2): a window belongs to its
//! protection domain, may be bound through any queue pair of it, also while it
//! is bound, and is unbound by a bind of nothing. Each bind gives it another
//! key, known at once.

use super::access::Access;
use super::context::Context;
use super::domain::{ProtectionDomain, RawDomain};
use super::region::MemoryRegion;
use crate::error::{ControlError, ControlErrorKind, last_errno};
use core::ptr::NonNull;
use dv_sys::inline::{ibv_alloc_mw, ibv_dealloc_mw};
use dv_sys::verbs::{self, ibv_mr, ibv_mw, ibv_mw_type};
use std::sync::Arc;

/// A memory window. Deallocated, and closed, when dropped.
pub struct MemoryWindow {
    raw: NonNull<ibv_mw>,
    /// As it was bound last.
    key: u32,
    /// The region that it was bound to last; kept by who bound it.
    region: Option<NonNull<ibv_mr>>,
    domain: Arc<RawDomain>,
}

// SAFETY: libibverbs lets any thread use a window; that of the region's pointer
// is made with the same promise.
unsafe impl Send for MemoryWindow {}
// SAFETY: as above; a shared window gives out plain numbers.
unsafe impl Sync for MemoryWindow {}

/// What a window is to open.
#[derive(Clone, Copy)]
pub struct WindowTarget<'a> {
    /// Of it, registered with [`Access::WINDOW_BIND`].
    pub region: &'a MemoryRegion,
    /// First byte.
    pub addr: u64,
    /// Bytes, 1 to 2^31.
    pub length: u64,
    /// What peers may do: of [`Access::REMOTE`]. Writing needs a region with
    /// [`Access::LOCAL_WRITE`].
    pub access: Access,
}

/// Whether the driver has windows. Some tell a number though they have no verb
/// for them (bnxt_re and erdma of Linux 6.1): the only way to know is to try.
pub(super) fn can_be_allocated(context: &Context) -> bool {
    // SAFETY: the context is open.
    let domain = unsafe { verbs::ibv_alloc_pd(context.as_ptr()) };
    let Some(domain) = NonNull::new(domain) else {
        return true;
    };
    // SAFETY: the domain is alive.
    let window = unsafe { ibv_alloc_mw(domain.as_ptr(), ibv_mw_type::IBV_MW_TYPE_1) };
    let lacks = match NonNull::new(window) {
        None => matches!(last_errno(), libc::EOPNOTSUPP | libc::ENOSYS),
        Some(window) => {
            // SAFETY: just allocated, and bound to nothing.
            unsafe { ibv_dealloc_mw(window.as_ptr()) };
            false
        }
    };
    // SAFETY: nothing is left in it.
    unsafe { verbs::ibv_dealloc_pd(domain.as_ptr()) };
    !lacks
}

impl ProtectionDomain {
    /// Allocates a memory window, which opens nothing.
    ///
    /// # Errors
    /// The device has none, or no more.
    pub fn alloc_window(&self) -> Result<MemoryWindow, ControlError> {
        const OPERATION: &str = "allocate a memory window";
        self.raw.context.require_here(OPERATION)?;
        if self.device().limits().windows == 0 {
            return Err(ControlError::new(
                ControlErrorKind::Unsupported,
                OPERATION,
                "the device has no memory windows (max_mw = 0)",
            ));
        }
        // SAFETY: the domain is alive.
        let raw = unsafe { ibv_alloc_mw(self.raw.as_ptr(), ibv_mw_type::IBV_MW_TYPE_1) };
        let raw = NonNull::new(raw).ok_or_else(|| ControlError::last(OPERATION))?;
        Ok(MemoryWindow {
            raw,
            // SAFETY: just allocated.
            key: unsafe { (*raw.as_ptr()).rkey },
            region: None,
            domain: Arc::clone(&self.raw),
        })
    }
}

impl MemoryWindow {
    /// What peers name it by, as it was bound last.
    #[must_use]
    pub fn rkey(&self) -> u32 {
        self.key
    }

    /// The key that the next bind gives it: only the lowest byte counts on.
    pub(crate) fn next_key(&self) -> u32 {
        (self.key & !0xff) | (self.key.wrapping_add(1) & 0xff)
    }

    /// A bind under that key was posted.
    pub(crate) fn bound(&mut self, key: u32, region: Option<&MemoryRegion>) {
        self.key = key;
        self.region = region.map(MemoryRegion::raw);
    }

    pub(crate) fn as_ptr(&self) -> *mut ibv_mw {
        self.raw.as_ptr()
    }

    /// The region that it was bound to last, if it was not unbound since.
    pub(crate) fn region(&self) -> Option<NonNull<ibv_mr>> {
        self.region
    }

    /// Whether a region, and a queue pair, may be used with it.
    pub(crate) fn is_of(&self, domain: &ProtectionDomain) -> bool {
        Arc::ptr_eq(&self.domain, &domain.raw)
    }

    pub(crate) fn goes_with(&self, region: &MemoryRegion) -> bool {
        Arc::ptr_eq(&self.domain, region.domain())
    }
}

impl core::fmt::Debug for MemoryWindow {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("MemoryWindow")
            .field("rkey", &self.key)
            .field("bound", &self.region.is_some())
            .finish_non_exhaustive()
    }
}

impl Drop for MemoryWindow {
    fn drop(&mut self) {
        if !self.domain.context.here() {
            return;
        }
        // SAFETY: allocated by `alloc_window`, and used no more.
        let errno = unsafe { ibv_dealloc_mw(self.raw.as_ptr()) };
        if errno != 0 {
            tracing::error!(errno, "ibv_dealloc_mw failed");
        }
    }
}
