//! Records every store of the CPU to chosen pages: order, address, length, bytes.
//!
//! Tests compare doorbells with libmlx5's by the stores that reach the device's
//! page, not by its final content: of two stores to one register only the second
//! remains, and the order of doorbell record and register is lost.
//!
//! While [`StoreTracer::record`] runs, the pages are read-only, so a store
//! faults. The handler then lets that one instruction run under the trap flag,
//! three times from the same registers. Two trials run over complementary
//! fillings of the window; they show exactly which bytes the instruction writes,
//! even where it writes the value that was there. The third runs over the true
//! content. (For an arithmetic read-modify-write the trials show the bytes that
//! it changes.) Other mappings of the same pages (the emulated NIC's) are not
//! affected, but no other thread may read them during a recording.

#[cfg(target_arch = "x86_64")]
use super::single_step as machine;

/// One store, or a run of stores that [`coalesced`] joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    /// Address of the first byte.
    pub addr: usize,
    /// The stored bytes, in memory order.
    pub bytes: Vec<u8>,
}

/// Size in bytes of a page on every supported machine.
pub const PAGE: usize = 4096;

/// The watched pages.
#[derive(Debug, Default)]
pub struct StoreTracer {
    pages: Vec<usize>,
}

/// Returns whether stores can be recorded on this machine. If not, prints so to
/// standard error.
pub fn supported() -> bool {
    if cfg!(target_arch = "x86_64") {
        return true;
    }
    eprintln!("SKIPPED: recording stores needs the trap flag of x86-64");
    false
}

impl StoreTracer {
    /// Adds the pages that hold these bytes.
    ///
    /// # Safety
    /// The pages are mapped readable and writable, and stay mapped while the
    /// tracer is used. During a recording only the recording thread stores to
    /// them or reads them.
    pub unsafe fn watch(&mut self, addr: usize, len: usize) {
        let first = addr & !(PAGE - 1);
        for page in (first..addr + len.max(1)).step_by(PAGE) {
            if !self.pages.contains(&page) {
                self.pages.push(page);
            }
        }
    }

    /// Runs `f` and returns every store that it made to the watched pages.
    #[cfg(target_arch = "x86_64")]
    pub fn record<R>(&self, f: impl FnOnce() -> R) -> (R, Vec<Store>) {
        machine::record(&self.pages, f)
    }

    /// Not available on this architecture: see [`supported`].
    #[cfg(not(target_arch = "x86_64"))]
    pub fn record<R>(&self, _: impl FnOnce() -> R) -> (R, Vec<Store>) {
        panic!("recording stores needs x86-64; ask `supported` first")
    }
}

/// Joins each store with the one before it if it begins where that one ended: a
/// copy of 64 bytes is one write, whichever registers it uses.
pub fn coalesced(stores: Vec<Store>) -> Vec<Store> {
    let mut joined: Vec<Store> = Vec::new();
    for store in stores {
        match joined.last_mut() {
            Some(last) if last.addr + last.bytes.len() == store.addr => {
                last.bytes.extend_from_slice(&store.bytes);
            }
            _ => joined.push(store),
        }
    }
    joined
}
