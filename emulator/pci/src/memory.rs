//! The guest's memory, as the NIC uses it.
//!
//! The client of the device shares the guest's memory as file descriptors. All of it is mapped
//! into one window of this process at its guest-physical addresses, so that such an address is
//! an offset in the window. A ring or a memory region of many pages is mapped once more, page
//! behind page in the order of the guest's list ([`GuestMemory::map_pages`]). So the NIC, which
//! knows neither pages nor guests, finds everything at contiguous addresses.
//!
//! A guest can only name what the client shares: each address is checked against the window,
//! and what is not mapped in it is a fault of the access, as on a bus.
//!
//! Decision: `docs/decisions/087-guest-pages-are-mapped-again.md`

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::iter;
use std::os::fd::AsRawFd;
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use mlx5emu::nic::memory;

/// Size of a page of the device, and the alignment of what the client shares.
pub const PAGE: u64 = 4096;
/// Guest-physical addresses below this can be used.
pub const WINDOW: u64 = 1 << 40;

/// A range of addresses of this process, which is unmapped when it is dropped.
#[derive(Debug)]
struct Range {
    start: u64,
    length: u64,
}

impl Range {
    /// Reserves addresses, none of which is accessible.
    fn reserve(length: u64) -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let at = unsafe {
            libc::mmap(
                ptr::null_mut(),
                length as usize,
                libc::PROT_NONE,
                flags,
                -1,
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            start: at as u64,
            length,
        })
    }

    /// Maps `length` bytes of a file at `offset` of the range.
    fn map(&self, offset: u64, length: u64, file: &File, from: u64) -> io::Result<()> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        self.replace(
            offset,
            length,
            access,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            from,
        )
    }

    /// Makes `length` bytes at `offset` inaccessible.
    fn clear(&self, offset: u64, length: u64) -> io::Result<()> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        self.replace(offset, length, libc::PROT_NONE, flags, -1, 0)
    }

    fn replace(
        &self,
        offset: u64,
        length: u64,
        access: i32,
        flags: i32,
        fd: i32,
        from: u64,
    ) -> io::Result<()> {
        let inside = offset
            .checked_add(length)
            .is_some_and(|end| end <= self.length);
        let from = i64::try_from(from).ok().filter(|_| inside && length > 0);
        let from = from.ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
        let at = (self.start + offset) as *mut libc::c_void;
        // SAFETY: only addresses of this range are replaced, as checked, to which no reference
        // exists: the NIC accesses them by address, with accesses that may fail.
        let mapped = unsafe {
            libc::mmap(
                at,
                length as usize,
                access,
                flags | libc::MAP_FIXED,
                fd,
                from,
            )
        };
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }
}

impl Drop for Range {
    fn drop(&mut self) {
        // SAFETY: the range is this value's own, and nothing refers to it.
        unsafe { libc::munmap(self.start as *mut libc::c_void, self.length as usize) };
    }
}

/// What the client shares at a guest-physical address.
#[derive(Debug)]
struct Shared {
    length: u64,
    file: File,
    offset: u64,
}

/// The memory of a guest.
#[derive(Debug)]
pub struct GuestMemory {
    window: Range,
    shared: Mutex<BTreeMap<u64, Shared>>,
}

/// Pages of the guest at contiguous addresses, until it is dropped.
#[derive(Debug)]
pub struct Pages {
    address: u64,
    length: u64,
    /// `None` if they are contiguous in the window.
    _range: Option<Range>,
}

impl Pages {
    /// Returns the address of `length` bytes from `offset`, if they are in the pages.
    #[must_use]
    pub fn address(&self, offset: u64, length: u64) -> Option<u64> {
        let end = offset.checked_add(length)?;
        (end <= self.length).then_some(self.address + offset)
    }
}

/// Why pages cannot be mapped.
#[derive(Debug, thiserror::Error)]
pub enum PagesError {
    /// A page is not in memory that the client shares, or no page is given.
    #[error("a page of the list is not in the guest's memory")]
    NotShared,
    /// The system refuses. With many scattered pages this is `vm.max_map_count`.
    #[error("the pages cannot be mapped ({0}); with many scattered pages, raise vm.max_map_count")]
    System(#[from] io::Error),
}

impl GuestMemory {
    /// Returns a memory without contents.
    ///
    /// # Errors
    /// Returns the system's error if the addresses cannot be reserved.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            window: Range::reserve(WINDOW)?,
            shared: Mutex::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Shared>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the address of the window: that of the guest-physical address 0.
    #[must_use]
    pub fn window(&self) -> u64 {
        self.window.start
    }

    /// Adds memory: `length` bytes from `offset` of a file.
    ///
    /// # Errors
    /// `EINVAL` if the range is empty, not of whole pages, not below [`WINDOW`] or shared
    /// already; else the system's error.
    pub fn share(&self, guest: u64, length: u64, file: File, offset: u64) -> io::Result<()> {
        let whole = [guest, length, offset]
            .iter()
            .all(|it| it.is_multiple_of(PAGE));
        let mut all = self.lock();
        let end = guest.checked_add(length).filter(|end| *end <= WINDOW);
        let free = end.is_some_and(|end| {
            let before = all.range(..end).next_back();
            before.is_none_or(|(start, it)| start + it.length <= guest)
        });
        if !whole || !free {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        self.window.map(guest, length, &file, offset)?;
        let shared = Shared {
            length,
            file,
            offset,
        };
        all.insert(guest, shared);
        Ok(())
    }

    /// Removes all memory that begins in a range. Pages that are mapped in another order stay
    /// until they are dropped.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn unshare(&self, guest: u64, length: u64) -> io::Result<()> {
        let end = guest.saturating_add(length);
        let mut all = self.lock();
        let gone: Vec<_> = all
            .range(guest..end)
            .map(|(start, it)| (*start, it.length))
            .collect();
        let mut cleared = Ok(());
        for (start, length) in gone {
            // Each of them, whether or not another fails.
            match self.window.clear(start, length) {
                Ok(()) => drop(all.remove(&start)),
                Err(error) => cleared = Err(error),
            }
        }
        cleared
    }

    /// Returns the address of `length` bytes at a guest-physical address. It need not be
    /// accessible.
    #[must_use]
    pub fn address(&self, guest: u64, length: u64) -> Option<u64> {
        let end = guest.checked_add(length)?;
        (end <= WINDOW).then_some(self.window.start + guest)
    }

    /// Copies memory of the guest. Returns whether all of it is accessible.
    #[must_use]
    pub fn read(&self, guest: u64, into: &mut [u8]) -> bool {
        let at = self.address(guest, into.len() as u64);
        at.is_some_and(|at| memory::read(at, into).is_ok())
    }

    /// Copies bytes to memory of the guest, the last word last. Returns whether all of it is
    /// accessible.
    #[must_use]
    pub fn write(&self, guest: u64, bytes: &[u8]) -> bool {
        let at = self.address(guest, bytes.len() as u64);
        at.is_some_and(|at| memory::write(at, bytes).is_ok())
    }

    /// Maps pages of `size` bytes, a multiple of [`PAGE`], in the order of the list.
    ///
    /// # Errors
    /// Returns [`PagesError`].
    pub fn map_pages(&self, pages: &[u64], size: u64) -> Result<Pages, PagesError> {
        let runs = runs(pages, size).ok_or(PagesError::NotShared)?;
        let all = self.lock();
        let length = runs.iter().map(|(_, length)| length).sum();
        if let [(guest, _)] = runs[..] {
            let is_shared = pieces(&all, runs[0]).all(|piece| piece.is_some());
            let pages = Pages {
                address: self.window.start + guest,
                length,
                _range: None,
            };
            return is_shared.then_some(pages).ok_or(PagesError::NotShared);
        }
        let range = Range::reserve(length)?;
        let mut at = 0;
        // One at a time: a list of large pages can have any number of pieces, and the system
        // refuses the first that is too many.
        for piece in runs.iter().flat_map(|run| pieces(&all, *run)) {
            let (length, shared, from) = piece.ok_or(PagesError::NotShared)?;
            range.map(at, length, &shared.file, from)?;
            at += length;
        }
        Ok(Pages {
            address: range.start,
            length,
            _range: Some(range),
        })
    }
}

/// Returns the parts of files that a range is made of: the length, the file, and the
/// offset in it. The last one is `None` if the rest of the range is not shared.
fn pieces(
    all: &BTreeMap<u64, Shared>,
    (mut guest, mut length): (u64, u64),
) -> impl Iterator<Item = Option<(u64, &Shared, u64)>> {
    iter::from_fn(move || {
        if length == 0 {
            return None;
        }
        let at = all.range(..=guest).next_back();
        let piece = at.and_then(|(start, shared)| {
            let inside = guest - start;
            let left = shared.length.checked_sub(inside).filter(|left| *left > 0)?;
            Some((length.min(left), shared, shared.offset + inside))
        });
        let taken = piece.map_or(length, |(taken, ..)| taken);
        guest += taken;
        length -= taken;
        Some(piece)
    })
}

/// Returns the contiguous ranges of a list of pages, in its order. `None` if there is no page,
/// or one is not aligned to [`PAGE`] or too high.
fn runs(pages: &[u64], size: u64) -> Option<Vec<(u64, u64)>> {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for &page in pages {
        if !page.is_multiple_of(PAGE) || page.checked_add(size)? > WINDOW {
            return None;
        }
        match runs.last_mut() {
            Some((start, length)) if *start + *length == page => *length += size,
            _ => runs.push((page, size)),
        }
    }
    (!runs.is_empty()).then_some(runs)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::testing::{emulator, memory_file};

    fn word(memory: &GuestMemory, guest: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        memory
            .read(guest, &mut bytes)
            .then(|| u64::from_be_bytes(bytes))
    }

    #[test]
    fn pages_of_any_order_are_contiguous_and_the_guest_s_own() {
        let file = memory_file(8 * PAGE);
        for page in 0..8 {
            file.write_all_at(&page.to_string().as_bytes()[..1], page * PAGE)
                .unwrap();
        }
        let memory = GuestMemory::new().unwrap();
        memory
            .share(0x10_0000, 4 * PAGE, file.try_clone().unwrap(), 0)
            .unwrap();
        memory
            .share(0x10_4000, 4 * PAGE, file.try_clone().unwrap(), 4 * PAGE)
            .unwrap();
        let page = |n: u64| 0x10_0000 + n * PAGE;
        // Over the border of the two, in one run; and in pieces.
        for order in [vec![3, 4, 5], vec![7, 0, 1, 3, 4, 2]] {
            let list: Vec<_> = order.iter().map(|n| page(*n)).collect();
            let pages = memory.map_pages(&list, PAGE).unwrap();
            for (at, n) in order.iter().enumerate() {
                let at = pages.address(at as u64 * PAGE, 8).unwrap();
                let mut byte = [0];
                mlx5emu::nic::memory::read(at, &mut byte).unwrap();
                assert_eq!(byte[0], b'0' + *n as u8);
                mlx5emu::nic::memory::write(at + 8, &[*n as u8 + 1; 8]).unwrap();
            }
            assert_eq!(pages.address(order.len() as u64 * PAGE - 7, 8), None);
        }
        assert_eq!(word(&memory, page(4) + 8), Some(0x0505_0505_0505_0505));
        let error = memory.map_pages(&[page(7), page(8)], PAGE);
        assert!(matches!(error, Err(PagesError::NotShared)));
        for list in [vec![], vec![1], vec![page(0), u64::MAX - PAGE + 1], vec![0]] {
            assert!(memory.map_pages(&list, PAGE).is_err(), "{list:x?}");
        }
    }

    #[test]
    fn what_is_not_shared_is_not_accessed() {
        // Which installs the handlers of signals.
        let _emulator = emulator();
        let file = memory_file(2 * PAGE);
        let memory = GuestMemory::new().unwrap();
        let clone = || file.try_clone().unwrap();
        assert_eq!(word(&memory, 0x1000), None);
        memory.share(0x1000, 2 * PAGE, clone(), 0).unwrap();
        assert_eq!(word(&memory, 0x1000), Some(0));
        assert_eq!(word(&memory, 0x3000 - 4), None);
        for (guest, length) in [
            (0x2000, PAGE),
            (0, 2 * PAGE),
            (0x800, PAGE),
            (WINDOW, PAGE),
            (0x9000, 0),
        ] {
            assert!(
                memory.share(guest, length, clone(), 0).is_err(),
                "{guest:#x} {length:#x}"
            );
        }
        // A file that has become shorter.
        file.set_len(0).unwrap();
        assert_eq!(word(&memory, 0x1000), None);
        file.set_len(2 * PAGE).unwrap();
        assert!(memory.write(0x1000, &[7; 8]));
        memory.unshare(0, WINDOW).unwrap();
        assert_eq!(word(&memory, 0x1000), None);
        assert!(!memory.write(0x1000, &[7; 8]));
        assert!(memory.map_pages(&[0x1000], PAGE).is_err());
        memory.share(0x2000, PAGE, clone(), 0).unwrap();
        assert_eq!(word(&memory, 0x2000), Some(0x0707_0707_0707_0707));
    }
}
