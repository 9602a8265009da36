//! Sees every store of the CPU into chosen pages: order, address, length, bytes.
//!
//! Doorbells are compared with libmlx5's by what reaches the device's page,
//! not by what is left in it: two stores to one register leave only the
//! second, and the order of the doorbell record and the register is lost.
//!
//! How: while [`StoreTracer::record`] runs, the pages are read-only. A store
//! faults; the handler lets that one instruction run by the trap flag, three
//! times from the same registers: over two complementary fillings of the
//! neighbourhood, which show exactly the bytes it writes even where they equal
//! what was there, and then over the true content. (An arithmetic
//! read-modify-write shows the bytes that it changes.) Other memory mapping the
//! same pages (an emulated NIC's) is not affected, except that it must not be
//! read by another thread during a recording.

#[cfg(target_arch = "x86_64")]
use super::single_step as machine;

/// One store, or a run of them that [`coalesced`] joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    /// Address of the first byte.
    pub addr: usize,
    /// What was stored, in memory order.
    pub bytes: Vec<u8>,
}

/// Bytes of a page on every machine that this runs on.
pub const PAGE: usize = 4096;

/// The pages to watch.
#[derive(Debug, Default)]
pub struct StoreTracer {
    pages: Vec<usize>,
}

/// Whether stores can be recorded here; says so on standard error if not.
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
    /// The pages are mapped readable and writable, and stay mapped as long as
    /// the tracer records; no thread but the recording one stores into them,
    /// or reads them, during a recording.
    pub unsafe fn watch(&mut self, addr: usize, len: usize) {
        let first = addr & !(PAGE - 1);
        for page in (first..addr + len.max(1)).step_by(PAGE) {
            if !self.pages.contains(&page) {
                self.pages.push(page);
            }
        }
    }

    /// Runs `f` and returns every store that it made into the watched pages.
    #[cfg(target_arch = "x86_64")]
    pub fn record<R>(&self, f: impl FnOnce() -> R) -> (R, Vec<Store>) {
        machine::record(&self.pages, f)
    }

    /// Not here: see [`supported`].
    #[cfg(not(target_arch = "x86_64"))]
    pub fn record<R>(&self, _: impl FnOnce() -> R) -> (R, Vec<Store>) {
        panic!("recording stores needs x86-64; ask `supported` first")
    }
}

/// Joins each store with the one before it when it begins where that one
/// ended: a copy of 64 bytes is one write, whatever registers made it.
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
