//! Whether registered memory is still at its addresses.
//!
//! A kernel pins registered pages: the device uses these pages until the region is
//! deregistered, whatever the program does with their addresses meanwhile. The emulated
//! device accesses the addresses, so it must know when pages leave them. The interposed
//! calls of `preload::memory_calls` mark these pages. A use of marked pages is a fault of
//! the program, and is reported; that they leave is none. With `--nasty pin` the pages are
//! pinned ([`pins`]), and the device continues to use them.
//!
//! Allocators make these calls under their locks: nothing is allocated or freed under
//! [`TABLE`], and no other lock is taken.
//!
//! Decision: `docs/decisions/053-lost-memory-fails-the-request.md`

mod pagemap;
pub(crate) mod pins;
mod ring;
mod table;

use std::ops::Range;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

pub(crate) use self::pagemap::Pagemap;
use self::pins::Pin;
use self::table::{RegisteredPages, Table};
use crate::fork::PerProcess;
use crate::sync::Mutex;

/// A call that can remove pages from their addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Call {
    Munmap = 1,
    MapFixed,
    Mremap,
    DontNeed,
    Free,
    Realloc,
    Brk,
}

/// How reports name the calls, by number.
const NAMES: [&str; 8] = [
    "no call",
    "munmap",
    "mmap with MAP_FIXED",
    "mremap",
    "madvise(MADV_DONTNEED)",
    "free",
    "realloc",
    "brk",
];

/// All registrations of this process.
static TABLE: PerProcess<Mutex<Table>> = PerProcess::new();

/// Number of registrations with pages that are gone.
static GONE: AtomicUsize = AtomicUsize::new(0);

/// The addresses between which all registrations are.
static LOWEST: AtomicU64 = AtomicU64::new(u64::MAX);
static HIGHEST: AtomicU64 = AtomicU64::new(0);

/// Changes the table, if this process has one.
pub(crate) fn with_table<T>(work: impl FnOnce(&mut Table) -> T) -> Option<T> {
    let mut table = TABLE.begun()?.lock();
    let result = work(&mut table);
    GONE.store(table.incomplete, Ordering::Release);
    Some(result)
}

pub(crate) fn page_size() -> u64 {
    // SAFETY: sysconf only returns a number.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(size).unwrap_or(4096)
}

/// A registration of whole pages.
#[derive(Debug)]
pub(crate) struct Registration {
    index: u32,
    start: u64,
    pin: Option<Pin>,
}

impl Registration {
    /// Adds a registration, and pins its pages if `pins` is set. Warns of what this host
    /// does not permit.
    pub(crate) fn new(start: u64, bytes: u64, pins: bool) -> Self {
        let pin = pins.then(|| Pin::new(start, bytes)).and_then(|pinned| {
            let warn = |error: &_| {
                let text = format!(
                    "--nasty pin cannot pin {bytes} bytes at {start:#x} ({error}): it needs \
                     writable memory of at most 1 GiB, and a sufficient limit of locked memory \
                     (ulimit -l); if the program unmaps them, the device uses what is there then"
                );
                crate::log::warn("pin", &text);
            };
            pinned.inspect_err(warn).ok()
        });
        static CHECK: Once = Once::new();
        CHECK.call_once(|| {
            if let Err(error) = Pagemap::open() {
                let text = format!(
                    "/proc/self/pagemap cannot be read ({error}): uses of registered memory are \
                     not reported if free, realloc or madvise has removed it"
                );
                crate::log::warn("pagemap", &text);
            }
        });
        let index = table::insert(TABLE.get(), RegisteredPages::new(start, bytes, page_size()));
        LOWEST.fetch_min(start, Ordering::Relaxed);
        HIGHEST.fetch_max(start + bytes, Ordering::Relaxed);
        Self { index, start, pin }
    }

    /// Returns the address of `length` bytes at `address` for a use of them, and what has
    /// happened to them, if that was not reported before.
    #[cold]
    pub(crate) fn find_use(&self, address: u64, length: u64) -> (u64, Option<String>) {
        let found = with_table(|table| table.find_use(self.index, address, length)).flatten();
        let Some((run, is_new)) = found else {
            return (address, None);
        };
        let (to_use, instead) = match &self.pin {
            Some(pin) => (
                pin.address(address - self.start),
                "as hardware does, it uses",
            ),
            None => (address, "hardware would use"),
        };
        let (Range { start, end }, call) = run;
        let report = is_new.then(|| {
            format!(
                "{call} has removed pages {start:#x} to {end:#x} of this registered memory: \
                 {instead} the old pages, which the program cannot see, so deregister memory \
                 before it is unmapped or replaced"
            )
        });
        (to_use, report)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // Freed without the lock.
        drop(with_table(|table| table.remove(self.index)));
    }
}

/// Returns whether no registration has pages that are gone: a use needs no look-up.
#[inline]
pub(crate) fn is_complete() -> bool {
    GONE.load(Ordering::Acquire) == 0
}

/// Returns whether a range may have registered pages; `false` is certain.
#[inline]
pub(crate) fn may_contain(start: u64, bytes: u64) -> bool {
    start < HIGHEST.load(Ordering::Relaxed)
        && start.saturating_add(bytes) > LOWEST.load(Ordering::Relaxed)
}
