//! The doorbell pages: the stores of applications are taken from here.
//!
//! An application (libmlx5, in fact) maps pages of its context's memory file
//! and stores doorbells there; the NIC maps the same pages and *takes* each
//! store by an atomic exchange against 0, which no doorbell ever is: its
//! second half is a queue number, and queue number 0 does not exist.
//!
//! Taking is [`UarBank::scan`]. Sleeping is [`UarBank::protect`], a last
//! scan, and a `ppoll` on [`UarBank::fault_fd`]: see [`fault`]. Where a store
//! on a protected page ends in a signal there is nothing to poll for.

pub mod fault;
mod page;

pub use self::page::is_doorbell;

use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use self::fault::{FaultWatch, Mapping};
use self::page::Page;
use crate::nic::spec::{ContextId, UarPage, UarWrite};

/// Bytes of a doorbell page.
pub const PAGE_SIZE: usize = 4096;

/// All doorbell pages of this process.
#[derive(Debug)]
pub struct UarBank {
    state: Mutex<State>,
    faults: Option<FaultWatch>,
}

#[derive(Debug, Default)]
struct State {
    pages: Vec<Page>,
    mappings: Vec<Mapping>,
    protected: bool,
}

impl UarBank {
    /// A bank without pages. Without `faults` it cannot wake a sleeper.
    #[must_use]
    pub fn new(faults: Option<FaultWatch>) -> Self {
        Self {
            state: Mutex::default(),
            faults,
        }
    }

    /// Starts to watch a page of a context's memory file.
    ///
    /// A page can be slept on once its mapping in the application is known
    /// ([`note_mapping`](Self::note_mapping)); while one is not, the NIC
    /// thread naps. So add a page when the application maps it.
    ///
    /// # Errors
    /// When the page cannot be mapped. Adding a page again changes nothing.
    pub fn add_page(&self, page: UarPage, memory_file: BorrowedFd<'_>) -> std::io::Result<()> {
        let mut state = self.lock();
        if state.pages.iter().all(|known| known.name() != page) {
            let mut watched = Page::map(page, memory_file)?;
            if state.mappings.iter().any(|mapping| mapping.page == page) {
                watched.mapping_known();
            }
            state.pages.push(watched);
        }
        Ok(())
    }

    /// Stops watching a page. A store that was not taken yet is lost, as it
    /// would be on a device that has released the page.
    pub fn remove_page(&self, page: UarPage) {
        self.remove(|name| name == page);
    }

    /// Stops watching all pages of a context.
    #[cfg(test)]
    pub fn remove_context(&self, context: ContextId) {
        self.remove(|name| name.context == context);
    }

    /// The application has mapped `len` bytes of a context's memory file at
    /// `addr`, beginning with page `page`.
    pub fn note_mapping(&self, context: ContextId, page: u32, addr: usize, len: usize) {
        let mut state = self.lock();
        let state = &mut *state;
        // The kernel dropped whatever was mapped there before.
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
            // A sleeper has protected the others already; this page joins
            // them when it sleeps the next time, which is now if it is woken.
            if let Some(known) = state.pages.iter_mut().find(|known| known.name() == page) {
                known.mapping_known();
            }
        }
        state.mappings.sort_unstable_by_key(|mapping| mapping.addr);
        if state.protected {
            state.protected = self.protect_all(state);
        }
    }

    /// The application has unmapped `len` bytes at `addr`.
    pub fn note_unmapping(&self, addr: usize, len: usize) {
        self.lock()
            .mappings
            .retain(|known| !known.overlaps(addr, len));
    }

    /// Takes every store that has been made, in no particular order between
    /// registers. Costs some ten loads per page when there is none.
    pub fn scan(&self, found: &mut dyn FnMut(UarWrite)) {
        for page in &self.lock().pages {
            page.scan(found);
        }
    }

    /// Makes the next store fault, and so [`fault_fd`](Self::fault_fd)
    /// readable. A store that came before is found by a scan afterwards.
    ///
    /// Answers `false`, with nothing protected, when a store could come
    /// unnoticed: the caller must then look again by itself.
    #[must_use]
    pub fn protect(&self) -> bool {
        let mut state = self.lock();
        if !state.pages.iter().all(Page::is_mapping_known) {
            return false;
        }
        if !state.protected {
            state.protected = self.protect_all(&mut state);
        }
        state.protected
    }

    /// Tells of the stores that wait in a fault, as doorbells whose bytes are
    /// not known yet: zeros, and they are stored later, to be scanned as any
    /// other. `false` if some store cannot be told this way.
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
            }),
            _ => complete = false,
        });
        complete
    }

    /// The page and the offset in it that an address of the application
    /// leads to.
    #[must_use]
    pub fn resolve(&self, addr: usize) -> Option<(UarPage, u16)> {
        let page = addr & !(PAGE_SIZE - 1);
        let state = self.lock();
        let known = state.mappings.iter().find(|mapping| mapping.addr == page)?;
        Some((known.page, (addr - page) as u16))
    }

    /// Makes a store in the application's stead: a later scan takes it.
    pub fn deposit(&self, write: &UarWrite) {
        let state = self.lock();
        let page = state.pages.iter().find(|page| page.name() == write.page);
        if let Some(page) = page {
            page.deposit(write.offset, write.bytes);
        }
    }

    /// Lets stores pass again, and those that wait in a fault go on.
    pub fn unprotect(&self) {
        let mut state = self.lock();
        if let (true, Some(faults)) = (state.protected, &self.faults) {
            state.protected = false;
            faults.set_protection(&mut state.mappings, false);
        }
    }

    /// Readable while a store waits; `None` where it does not wait.
    #[must_use]
    pub fn fault_fd(&self) -> Option<BorrowedFd<'_>> {
        self.faults.as_ref().and_then(FaultWatch::fd)
    }

    fn protect_all(&self, state: &mut State) -> bool {
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
        let mut state = self.lock();
        state.pages.retain(|page| !goes(page.name()));
        state.mappings.retain(|mapping| {
            let leaves = goes(mapping.page);
            if let (true, Some(faults)) = (leaves, &self.faults) {
                faults.unregister(mapping.addr, mapping.len);
            }
            !leaves
        });
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is consistent between any two statements above.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsRawFd for UarBank {
    /// The fault descriptor, or -1, which `poll` ignores.
    fn as_raw_fd(&self) -> i32 {
        self.fault_fd().map_or(-1, |fd| fd.as_raw_fd())
    }
}

#[cfg(test)]
pub(crate) mod tests;
