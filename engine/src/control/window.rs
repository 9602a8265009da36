//! Memory windows: rkeys that a queue pair opens for a part of a region, and closes
//! again, without a call to the kernel.
//!
//! The windows are of type 1 (InfiniBand 10.6.7.2.2). A window belongs to a
//! protection domain, may be bound through any queue pair of that domain, also
//! while it is bound, and is unbound by a bind of 0 bytes. Each bind gives the
//! window another rkey, which is known at once.
//!
//! Decision: `docs/decisions/032-rmr-is-a-type-1-window.md`

use super::access::Access;
use super::context::Context;
use super::domain::{ProtectionDomain, RawDomain};
use super::region::MemoryRegion;
use crate::error::{ControlError, ControlErrorKind, last_errno};
use core::ptr::NonNull;
use dv_sys::inline::{ibv_alloc_mw, ibv_dealloc_mw};
use dv_sys::verbs::{self, ibv_mr, ibv_mw, ibv_mw_type};
use std::sync::Arc;

/// A memory window. Unbound and deallocated when dropped.
pub struct MemoryWindow {
    raw: NonNull<ibv_mw>,
    /// The rkey of the last bind.
    key: u32,
    /// The region of the last bind. The caller of that bind keeps it registered.
    region: Option<NonNull<ibv_mr>>,
    domain: Arc<RawDomain>,
}

// SAFETY: libibverbs allows any thread to use a window; the region's pointer is
// used under the same promise.
unsafe impl Send for MemoryWindow {}
// SAFETY: as above; a shared window returns plain numbers only.
unsafe impl Sync for MemoryWindow {}

/// The memory that a bind opens to peers.
#[derive(Clone, Copy)]
pub struct WindowTarget<'a> {
    /// The region, registered with [`Access::WINDOW_BIND`].
    pub region: &'a MemoryRegion,
    /// The address of the first byte.
    pub addr: u64,
    /// The length in bytes, 1 to 2^31.
    pub length: u64,
    /// What peers may do: a subset of [`Access::REMOTE`]. Remote write needs a
    /// region with [`Access::LOCAL_WRITE`].
    pub access: Access,
}

/// Returns whether the driver has memory windows. Some drivers report a number but
/// have no verb for them (bnxt_re and erdma of Linux 6.1), so the only way to know
/// is to allocate one.
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
    // SAFETY: the domain is empty.
    unsafe { verbs::ibv_dealloc_pd(domain.as_ptr()) };
    !lacks
}

impl ProtectionDomain {
    /// Allocates a memory window, which is not bound.
    ///
    /// # Errors
    /// The device has no memory windows, or none left.
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
    /// Returns the rkey of the last bind, by which peers access the window.
    #[must_use]
    pub fn rkey(&self) -> u32 {
        self.key
    }

    /// Returns the rkey of the next bind: its lowest byte is incremented.
    pub(crate) fn next_key(&self) -> u32 {
        (self.key & !0xff) | (self.key.wrapping_add(1) & 0xff)
    }

    /// Records that a bind with that key was posted.
    pub(crate) fn bound(&mut self, key: u32, region: Option<&MemoryRegion>) {
        self.key = key;
        self.region = region.map(MemoryRegion::raw);
    }

    pub(crate) fn as_ptr(&self) -> *mut ibv_mw {
        self.raw.as_ptr()
    }

    /// Returns the region of the last bind, unless the window was unbound since.
    pub(crate) fn region(&self) -> Option<NonNull<ibv_mr>> {
        self.region
    }

    /// Returns whether the window is of this domain, so that its regions and queue
    /// pairs may be used.
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
        // SAFETY: allocated by `alloc_window`, and not used any more.
        let errno = unsafe { ibv_dealloc_mw(self.raw.as_ptr()) };
        if errno != 0 {
            tracing::error!(errno, "ibv_dealloc_mw failed");
        }
    }
}
