//! Protection domains.

use super::access::Access;
use super::buffer::RegisteredBuffer;
use super::context::Context;
use super::device::Device;
use super::region::MemoryRegion;
use crate::error::ControlError;
use core::ptr::NonNull;
use dv_sys::verbs::{self, ibv_pd};
use std::sync::Arc;

/// A protection domain: memory and queues of one domain may be used together.
/// Clones are handles to the same domain.
#[derive(Clone)]
pub struct ProtectionDomain {
    pub(super) device: Device,
    pub(super) raw: Arc<RawDomain>,
}

impl Device {
    /// Allocates a protection domain.
    ///
    /// # Errors
    /// The device has no protection domains left.
    pub fn alloc_pd(&self) -> Result<ProtectionDomain, ControlError> {
        const OPERATION: &str = "allocate a protection domain";
        self.context.require_here(OPERATION)?;
        // SAFETY: the context is open while `self` lives.
        let raw = unsafe { verbs::ibv_alloc_pd(self.context.as_ptr()) };
        let raw = NonNull::new(raw).ok_or_else(|| ControlError::last(OPERATION))?;
        let raw = Arc::new(RawDomain {
            raw,
            context: Arc::clone(&self.context),
        });
        Ok(ProtectionDomain {
            device: self.clone(),
            raw,
        })
    }
}

impl ProtectionDomain {
    /// Returns the device of the domain.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Registers `length` bytes at `addr` with the device.
    ///
    /// # Errors
    /// There is no memory at `addr`, `length` exceeds the device's limit, or the
    /// limit on locked memory is reached.
    ///
    /// # Safety
    /// Until the region is dropped, the memory stays mapped, and the device (and
    /// any peer with the rkey, as far as `access` allows) may read and write it at
    /// any time. No Rust reference may exist to bytes that are written, and nothing
    /// else may be allocated there.
    pub unsafe fn register(
        &self,
        addr: *mut u8,
        length: usize,
        access: Access,
    ) -> Result<MemoryRegion, ControlError> {
        // SAFETY: the callee requires the same of its caller.
        unsafe { MemoryRegion::register(self, addr, length, access) }
    }

    /// Allocates `length` bytes of zeroed, page-aligned memory and registers them.
    ///
    /// # Errors
    /// As for [`ProtectionDomain::register`], or there is no memory.
    pub fn allocate(
        &self,
        length: usize,
        access: Access,
    ) -> Result<RegisteredBuffer, ControlError> {
        RegisteredBuffer::allocate(self, length, access)
    }
}

/// An `ibv_pd`, deallocated with its last user.
pub(super) struct RawDomain {
    raw: NonNull<ibv_pd>,
    pub(super) context: Arc<Context>,
}

// SAFETY: libibverbs allows any threads to use a domain at the same time.
unsafe impl Send for RawDomain {}
// SAFETY: as above.
unsafe impl Sync for RawDomain {}

impl RawDomain {
    pub(super) fn as_ptr(&self) -> *mut ibv_pd {
        self.raw.as_ptr()
    }
}

impl Drop for RawDomain {
    fn drop(&mut self) {
        if !self.context.here() {
            return;
        }
        // SAFETY: allocated by `alloc_pd`; everything created in the domain held an
        // `Arc` of this and was destroyed.
        let errno = unsafe { verbs::ibv_dealloc_pd(self.raw.as_ptr()) };
        if errno != 0 {
            tracing::error!(errno, "ibv_dealloc_pd failed");
        }
    }
}
