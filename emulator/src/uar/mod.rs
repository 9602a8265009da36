//! The UAR pages, from which the NIC takes doorbells.
//!
//! The application (in fact libmlx5) maps pages of its context's memory file and
//! stores doorbells there. The NIC maps the same pages and takes each doorbell
//! by an atomic exchange with 0. No doorbell is 0: its second half is a queue
//! number, and queue number 0 does not exist.
//!
//! [`UarPages::scan`] takes doorbells. To sleep, the NIC thread calls
//! [`UarPages::protect`], scans once more, and waits with `ppoll` on
//! [`UarPages::fault_fd`]: see [`fault`]. If a store to a protected page raises a
//! signal, there is no descriptor to poll.
//!
//! Decision: `docs/decisions/004-doorbell-per-uar-page.md`

pub mod fault;
mod page;

pub use self::page::is_doorbell;

use std::os::fd::{AsRawFd, BorrowedFd};

use self::fault::{Mapping, Userfaultfd};
use self::page::Page;
use crate::spec::{ContextId, UarPage, UarWrite};
use crate::sync::Mutex;

/// Size of a UAR page in bytes.
pub const PAGE_SIZE: usize = 4096;

/// All UAR pages of this process.
#[derive(Debug)]
pub struct UarPages {
    state: Mutex<UarState>,
    faults: Option<Userfaultfd>,
}

#[derive(Debug, Default)]
struct UarState {
    pages: Vec<Page>,
    mappings: Vec<Mapping>,
    protected: bool,
}

impl UarPages {
    /// Returns an empty set of pages. Without `faults` stores cannot wake the NIC.
    #[must_use]
    pub fn new(faults: Option<Userfaultfd>) -> Self {
        Self {
            state: Mutex::default(),
            faults,
        }
    }

    /// Adds a page of a context's memory file.
    ///
    /// The NIC thread can sleep on a page once its mapping in the application is
    /// known ([`add_mapping`](Self::add_mapping)); until then it naps. So a
    /// page should be added when the application maps it. Adding a page again
    /// has no effect.
    ///
    /// # Errors
    /// Returns an error if the page cannot be mapped.
    pub fn add_page(&self, page: UarPage, memory_file: BorrowedFd<'_>) -> std::io::Result<()> {
        let mut state = self.state.lock();
        if state.pages.iter().all(|known| known.name() != page) {
            let mut watched = Page::map(page, memory_file)?;
            if state.mappings.iter().any(|mapping| mapping.page == page) {
                watched.mapping_known();
            }
            state.pages.push(watched);
        }
        Ok(())
    }

    /// Removes a page. A doorbell that was not taken yet is lost, as on a device
    /// that has released the page.
    pub fn remove_page(&self, page: UarPage) {
        self.remove(|name| name == page);
    }

    /// Removes all pages of a context.
    #[cfg(test)]
    pub fn remove_context(&self, context: ContextId) {
        self.remove(|name| name.context == context);
    }

    /// Records that the application has mapped `len` bytes of a context's memory
    /// file at `addr`, beginning with page `page`.
    pub fn add_mapping(&self, context: ContextId, page: u32, addr: usize, len: usize) {
        let mut state = self.state.lock();
        let state = &mut *state;
        // The kernel has removed what was mapped there before.
        state.mappings.retain(|known| !known.overlaps(addr, len));
        for (number, addr) in (page..).zip((addr..addr + len).step_by(PAGE_SIZE)) {
            let page = UarPage {
                context,
                page: number,
            };
            let Some(faults) = &self.faults else { continue };
            if !faults.register(addr, PAGE_SIZE) {
                continue;
            }
            state.mappings.push(Mapping {
                page,
                addr,
                len: PAGE_SIZE,
            });
            // If the NIC thread sleeps, the other pages are protected. This one
            // is protected with the next sleep, after the thread was woken.
            if let Some(known) = state.pages.iter_mut().find(|known| known.name() == page) {
                known.mapping_known();
            }
        }
        state.mappings.sort_unstable_by_key(|mapping| mapping.addr);
        if state.protected {
            state.protected = self.protect_all(state);
        }
    }

    /// Records that the application has unmapped `len` bytes at `addr`.
    pub fn remove_mapping(&self, addr: usize, len: usize) {
        self.state
            .lock()
            .mappings
            .retain(|known| !known.overlaps(addr, len));
    }

    /// Takes every doorbell that was stored, in no particular order between
    /// registers. Costs about ten loads per page if there is none. A BlueFlame copy that is
    /// made meanwhile may count as a doorbell of 8 bytes.
    pub fn scan(&self, found: &mut dyn FnMut(UarWrite)) {
        for page in &self.state.lock().pages {
            page.scan(found);
        }
    }

    /// Write-protects all pages: the next store faults and makes
    /// [`fault_fd`](Self::fault_fd) readable. An earlier store is found by the
    /// scan that must follow.
    ///
    /// Returns `false`, with nothing protected, if a store could go unnoticed;
    /// the caller must then scan repeatedly.
    #[must_use]
    pub fn protect(&self) -> bool {
        let mut state = self.state.lock();
        if !state.pages.iter().all(Page::is_mapping_known) {
            return false;
        }
        if !state.protected {
            state.protected = self.protect_all(&mut state);
        }
        state.protected
    }

    /// Reports the stores that wait in a page fault, as doorbells with unknown
    /// bytes (zeros). The store itself follows later and is found by a scan.
    /// Returns `false` if some store cannot be reported this way.
    #[must_use]
    pub fn take_faults(&self, found: &mut dyn FnMut(UarWrite)) -> bool {
        let Some(faults) = &self.faults else {
            return true;
        };
        let mut complete = true;
        faults.read(&mut |addr| match self.resolve(addr) {
            Some((page, offset)) if page::is_doorbell(offset) => found(UarWrite {
                page,
                offset,
                bytes: [0; 8],
                copy: None,
            }),
            _ => complete = false,
        });
        complete
    }

    /// Returns the page, and the offset in it, at an address of the application.
    #[must_use]
    pub fn resolve(&self, addr: usize) -> Option<(UarPage, u16)> {
        let page = addr & !(PAGE_SIZE - 1);
        let state = self.state.lock();
        let known = state.mappings.iter().find(|mapping| mapping.addr == page)?;
        Some((known.page, (addr - page) as u16))
    }

    /// Makes a store for the application; a later scan takes it.
    pub fn deposit(&self, write: &UarWrite) {
        let state = self.state.lock();
        let page = state.pages.iter().find(|page| page.name() == write.page);
        if let Some(page) = page {
            page.deposit(write.offset, write.bytes);
        }
    }

    /// Removes the protection; stores that wait in a page fault continue.
    pub fn unprotect(&self) {
        let mut state = self.state.lock();
        if let (true, Some(faults)) = (state.protected, &self.faults) {
            state.protected = false;
            faults.set_protection(&mut state.mappings, false);
        }
    }

    /// Returns a descriptor that is readable while a store waits, or `None` if
    /// stores do not wait.
    #[must_use]
    pub fn fault_fd(&self) -> Option<BorrowedFd<'_>> {
        self.faults.as_ref().and_then(Userfaultfd::fd)
    }

    fn protect_all(&self, state: &mut UarState) -> bool {
        if state.pages.is_empty() {
            return true;
        }
        let Some(faults) = &self.faults else {
            return false;
        };
        if faults.set_protection(&mut state.mappings, true) {
            return true;
        }
        faults.set_protection(&mut state.mappings, false);
        false
    }

    fn remove(&self, goes: impl Fn(UarPage) -> bool) {
        let mut state = self.state.lock();
        state.pages.retain(|page| !goes(page.name()));
        state.mappings.retain(|mapping| {
            let leaves = goes(mapping.page);
            if let (true, Some(faults)) = (leaves, &self.faults) {
                faults.unregister(mapping.addr, mapping.len);
            }
            !leaves
        });
    }
}

impl AsRawFd for UarPages {
    /// Returns the fault descriptor, or -1, which `poll` ignores.
    fn as_raw_fd(&self) -> i32 {
        self.fault_fd().map_or(-1, |fd| fd.as_raw_fd())
    }
}

#[cfg(test)]
pub(crate) mod tests;
