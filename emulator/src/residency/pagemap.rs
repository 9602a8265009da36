//! `/proc/self/pagemap`: which pages are at their addresses. Read without allocating.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Number of entries that are read at once. Programs have small stacks.
const BLOCK: usize = 64;

/// The entries of this process.
pub(crate) struct Pagemap {
    file: File,
    page: u64,
    block: [u8; 8 * BLOCK],
    /// Number of the first page in `block`.
    first: Option<u64>,
}

// Bits of an entry (`Documentation/admin-guide/mm/pagemap.rst`) that need no privilege.
const SHARED_OR_FILE: u64 = 1 << 61;
const SWAPPED: u64 = 1 << 62;
const PRESENT: u64 = 1 << 63;

impl Pagemap {
    /// Opens the file.
    ///
    /// # Errors
    /// Returns the error if there is none or it cannot be opened.
    pub(crate) fn open() -> io::Result<Self> {
        Ok(Self {
            file: File::open("/proc/self/pagemap")?,
            page: super::page_size(),
            block: [0; _],
            first: None,
        })
    }

    /// Returns whether there is no page at the address.
    pub(crate) fn is_absent(&mut self, address: u64) -> bool {
        self.entry(address) & (PRESENT | SWAPPED) == 0
    }

    /// Returns whether there is a page at the address, which only this mapping has.
    pub(crate) fn is_private(&mut self, address: u64) -> bool {
        !self.is_absent(address) && self.entry(address) & SHARED_OR_FILE == 0
    }

    /// Returns the entry of a page. A page whose entry cannot be read counts as shared.
    fn entry(&mut self, address: u64) -> u64 {
        let number = address / self.page;
        let first = number - number % BLOCK as u64;
        if self.first != Some(first) {
            if self.file.read_exact_at(&mut self.block, first * 8).is_err() {
                self.block.fill(u8::MAX);
            }
            self.first = Some(first);
        }
        let entries = self.block.as_chunks().0;
        u64::from_ne_bytes(entries[(number - first) as usize])
    }
}
