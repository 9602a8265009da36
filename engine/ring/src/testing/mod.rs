//! Plain memory in place of rings, for tests: filled, inspected byte by byte,
//! and never behind a reference while a ring uses it.

use core::ptr::NonNull;

#[repr(C, align(64))]
#[derive(Clone, Copy)]
struct Line([u8; 64]);

/// Memory of whole, aligned cache lines.
#[derive(Debug)]
pub(crate) struct Memory {
    at: NonNull<u8>,
    len: usize,
}

// SAFETY: heap memory, owned; tests that share it use the rings' own protocols.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    pub(crate) fn new(len: usize, fill: u8) -> Self {
        let lines = vec![Line([fill; 64]); len.div_ceil(64)].into_boxed_slice();
        Self {
            len: lines.len() * 64,
            at: NonNull::from(Box::leak(lines)).cast(),
        }
    }

    pub(crate) fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset <= self.len);
        // SAFETY: inside, or one past, the memory.
        unsafe { self.at.add(offset) }
    }

    pub(crate) fn bytes(&self, offset: usize, len: usize) -> Vec<u8> {
        assert!(offset + len <= self.len);
        // SAFETY: inside the memory, which is always initialised.
        (offset..offset + len)
            .map(|at| unsafe { self.at(at).read_volatile() })
            .collect()
    }

    pub(crate) fn all(&self) -> Vec<u8> {
        self.bytes(0, self.len)
    }

    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.len);
        for (at, byte) in bytes.iter().enumerate() {
            // SAFETY: inside the memory.
            unsafe { self.at(offset + at).write_volatile(*byte) };
        }
    }

    pub(crate) fn be32(&self, offset: usize) -> u32 {
        u32::from_be_bytes(self.bytes(offset, 4).try_into().unwrap())
    }

    /// Address, as a segment names it.
    pub(crate) fn addr(&self, offset: usize) -> u64 {
        self.at(offset).as_ptr().expose_provenance() as u64
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let lines = NonNull::slice_from_raw_parts(self.at.cast::<Line>(), self.len / 64);
        // SAFETY: leaked by `new` from a box of as many lines.
        drop(unsafe { Box::from_raw(lines.as_ptr()) });
    }
}
