//! One UAR page, mapped for the NIC.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::{MmapOptions, MmapRaw};

use super::PAGE_SIZE;
use crate::limits::{BF_OFFSET, BF_REG_SIZE, CQ_ARM_OFFSET};
use crate::spec::{UarPage, UarWrite};

/// Offsets at which a doorbell can begin: the CQ arm register, and both buffers
/// of the four BlueFlame registers (of which libmlx5 uses the first two).
const DOORBELLS: [u16; 9] = {
    let mut offsets = [CQ_ARM_OFFSET as u16; 9];
    let mut half = 0;
    while half < 8 {
        offsets[half + 1] = (BF_OFFSET + half as u32 * (BF_REG_SIZE / 2)) as u16;
        half += 1;
    }
    offsets
};

/// Returns whether a doorbell can begin at this offset of a page.
#[must_use]
pub fn is_doorbell(offset: u16) -> bool {
    DOORBELLS.contains(&offset)
}

#[derive(Debug)]
pub(super) struct Page {
    name: UarPage,
    memory: MmapRaw,
    mapping_known: bool,
}

impl Page {
    pub(super) fn map(name: UarPage, memory_file: BorrowedFd<'_>) -> std::io::Result<Self> {
        let memory = MmapOptions::new()
            .offset(u64::from(name.page) * PAGE_SIZE as u64)
            .len(PAGE_SIZE)
            .map_raw(memory_file.as_raw_fd())?;
        Ok(Self {
            name,
            memory,
            mapping_known: false,
        })
    }

    pub(super) fn name(&self) -> UarPage {
        self.name
    }

    pub(super) fn mapping_known(&mut self) {
        self.mapping_known = true;
    }

    pub(super) fn is_mapping_known(&self) -> bool {
        self.mapping_known
    }

    pub(super) fn scan(&self, found: &mut dyn FnMut(UarWrite)) {
        for offset in DOORBELLS {
            let word = self.word(offset);
            // The load keeps the cache line shared while there is no doorbell.
            // Acquire: the doorbell records and WQEs stored before the doorbell
            // are visible after it.
            if word.load(Ordering::Relaxed) != 0 {
                let bytes = word.swap(0, Ordering::Acquire).to_ne_bytes();
                found(UarWrite {
                    page: self.name,
                    offset,
                    bytes,
                    copy: self.take_copy(offset),
                });
            }
        }
    }

    /// Clears the rest of the first 64 bytes at the doorbell `offset`. Returns the first 8
    /// of them if something was stored in any.
    fn take_copy(&self, offset: u16) -> Option<[u8; 8]> {
        if u32::from(offset) < BF_OFFSET {
            return None;
        }
        let mut first = None;
        for at in 1..8 {
            let word = self.word(offset + 8 * at);
            if word.load(Ordering::Relaxed) != 0 {
                let taken = word.swap(0, Ordering::Relaxed);
                first = first.or(Some(if at == 1 { taken } else { 0 }));
            }
        }
        first.map(u64::to_ne_bytes)
    }

    pub(super) fn deposit(&self, offset: u16, bytes: [u8; 8]) {
        if is_doorbell(offset) {
            // A word of 0 means no doorbell; u64::MAX means an unknown doorbell.
            let word = u64::from_ne_bytes(bytes);
            let word = if word == 0 { u64::MAX } else { word };
            self.word(offset).store(word, Ordering::Release);
        }
    }

    fn word(&self, offset: u16) -> &AtomicU64 {
        let word = self
            .memory
            .as_mut_ptr()
            .wrapping_add(usize::from(offset))
            .cast();
        // SAFETY: `offset` comes from DOORBELLS, or is one of the seven words
        // behind a BlueFlame buffer of it: multiples of 8 below PAGE_SIZE, as
        // checked below. `map` mapped PAGE_SIZE bytes, page
        // aligned, which live as long as `self`. The application stores to
        // the same word through its own mapping, with single 8-byte stores.
        unsafe { AtomicU64::from_ptr(word) }
    }
}

const _: () = {
    let mut i = 0;
    while i < DOORBELLS.len() {
        assert!(DOORBELLS[i].is_multiple_of(8) && DOORBELLS[i] as usize + 64 <= PAGE_SIZE);
        i += 1;
    }
};
