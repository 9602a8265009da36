//! Buffers: memory that is allocated and registered together.

use super::access::Access;
use super::domain::ProtectionDomain;
use super::region::MemoryRegion;
use crate::error::{ControlError, ControlErrorKind, last_errno};
use crate::request::Segment;
use core::ptr::NonNull;
use memmap2::{Advice, MmapOptions, MmapRaw};

/// Page-aligned, zeroed memory in its own mapping, and its registration.
///
/// The device may write to the memory at any time, so it is never borrowed as a
/// slice. Use pointers, or [`RegisteredBuffer::write`] and
/// [`RegisteredBuffer::read`] while no request uses it. A forked child does not
/// inherit the mapping.
pub struct RegisteredBuffer {
    // Declared before the mapping, so that it is deregistered first.
    region: MemoryRegion,
    memory: MmapRaw,
}

impl RegisteredBuffer {
    pub(super) fn allocate(
        domain: &ProtectionDomain,
        length: usize,
        access: Access,
    ) -> Result<Self, ControlError> {
        let placed = domain.raw.context.prefer_node();
        let memory = map(length)?;
        drop(placed);
        // SAFETY: the mapping has no other user, and is unmapped after the region
        // is deregistered (field order); no reference to it is made.
        let region = unsafe { domain.register(memory.as_mut_ptr(), length, access)? };
        Ok(Self { region, memory })
    }

    /// Returns the address of the first byte.
    #[must_use]
    pub fn as_ptr(&self) -> NonNull<u8> {
        NonNull::new(self.memory.as_mut_ptr()).expect("mmap does not return null")
    }

    /// Returns the length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.region.len()
    }

    /// Returns `false`: a buffer of 0 bytes cannot be allocated.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.region.is_empty()
    }

    /// Returns the memory region.
    #[must_use]
    pub fn region(&self) -> &MemoryRegion {
        &self.region
    }

    /// Returns `length` bytes from `offset` as a segment of a request; `None` if
    /// they are not all inside the buffer.
    #[must_use]
    pub fn segment(&self, offset: usize, length: u32) -> Option<Segment> {
        let inside = offset.checked_add(length as usize)? <= self.len();
        inside.then(|| Segment {
            addr: self.as_ptr().addr().get() as u64 + offset as u64,
            length,
            lkey: self.region.lkey(),
        })
    }

    /// Copies `bytes` to `offset`. Returns `false`, with nothing copied, if they do
    /// not fit.
    ///
    /// # Safety
    /// No request, here or of a peer, that accesses these bytes is outstanding.
    #[must_use]
    pub unsafe fn write(&self, offset: usize, bytes: &[u8]) -> bool {
        let inside = self.contains(offset, bytes.len());
        if inside {
            // SAFETY: inside the mapping, to which no Rust reference exists, so the
            // ranges do not overlap; the caller promises that no device accesses
            // it.
            unsafe {
                self.at(offset)
                    .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len())
            };
        }
        inside
    }

    /// Fills `bytes` from `offset`. Returns `false`, with nothing copied, if the
    /// buffer has fewer.
    ///
    /// # Safety
    /// As for [`RegisteredBuffer::write`].
    #[must_use]
    pub unsafe fn read(&self, offset: usize, bytes: &mut [u8]) -> bool {
        let inside = self.contains(offset, bytes.len());
        if inside {
            // SAFETY: as in `write`.
            unsafe {
                self.at(offset)
                    .copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len())
            };
        }
        inside
    }

    fn at(&self, offset: usize) -> *mut u8 {
        self.memory.as_mut_ptr().wrapping_add(offset)
    }

    fn contains(&self, offset: usize, length: usize) -> bool {
        offset
            .checked_add(length)
            .is_some_and(|end| end <= self.len())
    }
}

/// Creates a private anonymous mapping with all its pages present, so that no
/// access causes a page fault.
fn map(length: usize) -> Result<MmapRaw, ControlError> {
    const OPERATION: &str = "allocate a buffer";
    if length == 0 {
        return Err(
            ControlError::new(ControlErrorKind::Limit, OPERATION, "its length is 0")
                .with_remedy("allocate at least one byte"),
        );
    }
    let failed =
        || ControlError::verbs(OPERATION, last_errno()).with_cause(format!("{length} bytes"));
    let memory = MmapOptions::new()
        .len(length)
        .populate()
        .map_anon()
        .map_err(|_| failed())?;
    // A forked child cannot use the device's objects. Kernels before 5.12 would
    // copy pinned pages on the parent's next write, so that the device and the
    // parent used different pages.
    memory.advise(Advice::DontFork).map_err(|_| failed())?;
    Ok(memory.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_buffer_is_refused_before_mmap() {
        let error = map(0).unwrap_err();
        assert_eq!(error.kind(), ControlErrorKind::Limit);
    }

    #[test]
    fn an_impossible_buffer_is_an_error_with_its_size() {
        let error = map(1 << 60).unwrap_err();
        assert_eq!(error.errno(), Some(libc::ENOMEM));
        assert!(
            error.to_string().contains("1152921504606846976 bytes"),
            "{error}"
        );
    }
}
