//! The pages behind the guest's memory keys, which commands and UMRs change.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mlx5emu::decode::umr::{MkeyMask, Umr, UmrFlags};
use mlx5emu::nic::{Memory, Translator};

use crate::memory::{GuestMemory, PAGE, Pages, PagesError};

/// Binary logarithms of the sizes of pages that keys can have.
const LOG_SIZES: std::ops::RangeInclusive<u32> = 12..=40;

/// The most pages in the lists of all keys together, 256 MiB of addresses, and of one key that
/// is not counted.
const MOST_LISTED: usize = 32 << 20;
const SMALL: usize = 64;

/// A key with a list of pages.
#[derive(Debug, Default)]
pub struct Key {
    /// The addresses of the pages.
    pub list: Vec<u64>,
    /// The most pages that the list can have.
    pub most: usize,
    /// log2 of the size of a page in bytes.
    pub log_size: u32,
    /// The address by which users name the first byte, and the number of bytes.
    pub start: u64,
    pub length: u64,
    /// The pages, while users can access them.
    pub pages: Option<Pages>,
}

impl Key {
    /// Maps the pages. Returns the memory.
    ///
    /// # Errors
    /// Returns [`PagesError`].
    pub fn map(&mut self, memory: &GuestMemory) -> Result<Memory, PagesError> {
        let known = LOG_SIZES
            .contains(&self.log_size)
            .then(|| 1_u64 << self.log_size);
        let size = known.ok_or(PagesError::NotShared)?;
        let offset = self.start & (size - 1);
        // Users' addresses do not wrap around, so neither do those from the first page on.
        let ends = self.start.checked_add(self.length).is_some();
        let end = ends.then(|| offset + self.length);
        let end = end.ok_or(PagesError::NotShared)?;
        let count = usize::try_from(end.div_ceil(size)).unwrap_or(usize::MAX);
        let list = self.list.get(..count).ok_or(PagesError::NotShared)?;
        let pages = memory.map_pages(list, size)?;
        let start = pages
            .address(offset, self.length)
            .ok_or(PagesError::NotShared)?;
        self.pages = Some(pages);
        Ok(Memory {
            start,
            length: self.length,
            hca_va: self.start,
        })
    }

    fn change(
        &mut self,
        memory: &GuestMemory,
        umr: &Umr,
        entries: &[u8],
    ) -> Result<Option<Memory>, &'static str> {
        let has_offset = umr.flags.contains(UmrFlags::TRANSLATION_OFFSET);
        // Offsets are in units of two addresses.
        let first = if has_offset {
            2 * usize::from(umr.offset)
        } else {
            0
        };
        // The driver's lists are padded to 64 bytes, beyond what the key has room for.
        let end = (first + entries.len() / 8).min(self.most);
        if first > end {
            return Err("the list of pages begins behind what the key has room for");
        }
        if self.list.len() < end {
            self.list.resize(end, 0);
        }
        for (page, entry) in self.list[first..end].iter_mut().zip(addresses(entries)) {
            *page = entry;
        }
        let mask = umr.mask;
        if mask.contains(MkeyMask::PAGE_SIZE) {
            self.log_size = umr.log_page_size.into();
        }
        if mask.contains(MkeyMask::START) {
            self.start = umr.start;
        }
        if mask.contains(MkeyMask::LENGTH) {
            self.length = umr.length;
        }
        let is_moved = mask.intersects(MkeyMask::PAGE_SIZE | MkeyMask::START | MkeyMask::LENGTH);
        let is_live = self.pages.is_some() && !entries.is_empty();
        if !is_moved && !is_live {
            return Ok(None);
        }
        let mapped = self.map(memory);
        mapped
            .map(Some)
            .map_err(|_| "its pages are not in the guest's memory, or cannot be mapped")
    }
}

/// Returns the addresses in a list of big-endian entries, whose lowest bits are rights.
pub fn addresses(entries: &[u8]) -> impl Iterator<Item = u64> {
    let words = entries.chunks_exact(8);
    words.map(|word| word.try_into().map_or(0, u64::from_be_bytes) & !(PAGE - 1))
}

/// All keys with lists of pages, by index.
#[derive(Debug, Default)]
pub struct Keys(Mutex<HashMap<u32, Key>>);

impl Keys {
    /// Returns the keys. The lock is taken behind that of the NIC, and before that of the
    /// memory.
    pub fn lock(&self) -> MutexGuard<'_, HashMap<u32, Key>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the lists of all keys may have `pages` more.
    #[must_use]
    pub fn have_room(&self, pages: usize) -> bool {
        let listed = || {
            self.lock()
                .values()
                .map(|key| key.list.len())
                .sum::<usize>()
        };
        pages <= SMALL || listed().saturating_add(pages) <= MOST_LISTED
    }
}

/// Changes keys for the NIC.
pub struct Changes {
    pub keys: Arc<Keys>,
    pub memory: Arc<GuestMemory>,
}

impl Translator for Changes {
    fn change(
        &mut self,
        index: u32,
        umr: &Umr,
        entries: &[u8],
    ) -> Result<Option<Memory>, &'static str> {
        // As long as a list can become.
        let reach = 2 * usize::from(umr.offset) + entries.len() / 8;
        if !self.keys.have_room(reach) {
            return Err("the lists of all keys have as many pages as this device keeps");
        }
        match self.keys.lock().get_mut(&index) {
            Some(key) => key.change(&self.memory, umr, entries),
            None if entries.is_empty() => Ok(None),
            None => Err("the key has no list of pages"),
        }
    }
}
