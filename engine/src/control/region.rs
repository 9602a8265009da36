//! Memory regions: memory that is registered with a device.

use super::access::Access;
use super::domain::{ProtectionDomain, RawDomain};
use super::memlock::LockedMemory;
use crate::error::{ControlError, ControlErrorKind};
use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use dv_sys::verbs::{self, ibv_mr};
use std::sync::Arc;

/// A memory region, deregistered when dropped.
pub struct MemoryRegion {
    raw: NonNull<ibv_mr>,
    addr: *mut u8,
    length: usize,
    lkey: u32,
    rkey: u32,
    domain: Arc<RawDomain>,
}

// SAFETY: libibverbs allows any thread to deregister; the address is only returned,
// never dereferenced here.
unsafe impl Send for MemoryRegion {}
// SAFETY: as above; a shared region returns plain numbers only.
unsafe impl Sync for MemoryRegion {}

const OPERATION: &str = "register memory";

impl MemoryRegion {
    /// Registers memory.
    ///
    /// # Safety
    /// As [`ProtectionDomain::register`].
    pub(super) unsafe fn register(
        domain: &ProtectionDomain,
        addr: *mut u8,
        length: usize,
        access: Access,
    ) -> Result<Self, ControlError> {
        let context = &domain.raw.context;
        context.require_here(OPERATION)?;
        access.check(OPERATION)?;
        check_length(length, domain.device().limits().region_size)?;
        // The bits fit: they are those of the C enum.
        let bits = access.bits().cast_signed();
        let _placed = context.prefer_node();
        // SAFETY: the domain is alive. The kernel checks that the memory is mapped;
        // the caller promises that it stays mapped.
        let raw =
            unsafe { dv_sys::inline::dv_reg_mr(domain.raw.as_ptr(), addr.cast(), length, bits) };
        let Some(raw) = NonNull::new(raw) else {
            return Err(explain(ControlError::last(OPERATION), addr, length));
        };
        // SAFETY: a live ibv_mr, whose keys libibverbs does not change.
        let (lkey, rkey) = unsafe { ((*raw.as_ptr()).lkey, (*raw.as_ptr()).rkey) };
        tracing::debug!(?addr, length, lkey, rkey, ?access, "registered memory");
        Ok(Self {
            raw,
            addr,
            length,
            lkey,
            rkey,
            domain: Arc::clone(&domain.raw),
        })
    }

    /// Returns the `ibv_mr`, which is valid as long as this lives.
    pub(crate) fn raw(&self) -> NonNull<ibv_mr> {
        self.raw
    }

    pub(super) fn domain(&self) -> &Arc<RawDomain> {
        &self.domain
    }

    /// Returns the local key (lkey), for segments of local requests.
    #[must_use]
    pub fn lkey(&self) -> u32 {
        self.lkey
    }

    /// Returns the remote key (rkey), for peers.
    #[must_use]
    pub fn rkey(&self) -> u32 {
        self.rkey
    }

    /// Returns the address of the first byte.
    #[must_use]
    pub fn addr(&self) -> *mut u8 {
        self.addr
    }

    /// Returns the length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Returns `false`: a region of 0 bytes cannot be registered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }
}

impl MemoryRegion {
    /// Deregisters the region, unless the device reports that a memory window is
    /// bound to it: the region is then returned, still registered.
    ///
    /// # Errors
    /// The region, if a window is bound to it.
    pub fn deregister(self) -> Result<(), Self> {
        let region = ManuallyDrop::new(self);
        match region.end() {
            // The errors for a bound window: mlx5 returns the first, rxe the
            // second. A registered region has no other reason to fail.
            libc::EBUSY | libc::EINVAL => Err(ManuallyDrop::into_inner(region)),
            _ => {
                // SAFETY: the last use of the region; only this field is left to
                // drop.
                unsafe { core::ptr::drop_in_place((&raw const region.domain).cast_mut()) };
                Ok(())
            }
        }
    }

    /// Deregisters the region. Returns an error number, or 0.
    fn end(&self) -> i32 {
        if !self.domain.context.here() {
            return 0;
        }
        // SAFETY: registered by `register`; the callers deregister it once.
        let errno = unsafe { verbs::ibv_dereg_mr(self.raw.as_ptr()) };
        if errno != 0 {
            tracing::warn!(errno, "ibv_dereg_mr failed");
        }
        errno
    }
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        self.end();
    }
}

fn check_length(length: usize, most: u64) -> Result<(), ControlError> {
    let length = length as u64;
    if length == 0 {
        return Err(
            ControlError::new(ControlErrorKind::Limit, OPERATION, "its length is 0")
                .with_remedy("register at least one byte"),
        );
    }
    if length > most {
        let cause = format!("{length} bytes are above the device's limit max_mr_size = {most}");
        return Err(ControlError::new(ControlErrorKind::Limit, OPERATION, cause)
            .with_remedy("register the memory in parts"));
    }
    Ok(())
}

fn explain(error: ControlError, addr: *mut u8, length: usize) -> ControlError {
    match error.errno() {
        Some(libc::EFAULT) => error
            .with_kind(ControlErrorKind::Invalid)
            .with_cause(format!(
                "not all of the {length} bytes at {addr:p} are mapped"
            ))
            .with_remedy("map the memory before registering it, writable for LOCAL_WRITE"),
        _ => LockedMemory::current().explain(error, length as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_bytes_and_too_many_bytes_are_refused() {
        assert_eq!(
            check_length(0, 100).unwrap_err().kind(),
            ControlErrorKind::Limit
        );
        let error = check_length(101, 100).unwrap_err();
        assert!(error.to_string().contains("max_mr_size = 100"), "{error}");
        assert!(check_length(100, 100).is_ok());
    }

    #[test]
    fn unmapped_memory_is_named() {
        let error = explain(
            ControlError::verbs(OPERATION, libc::EFAULT),
            core::ptr::without_provenance_mut(0x1000),
            64,
        );
        assert!(error.to_string().contains("64 bytes at 0x1000"), "{error}");
    }
}
