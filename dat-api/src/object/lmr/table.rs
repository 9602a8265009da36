//! The table in which posts look up an `lmr_context`.
//!
//! There is one table for the process, because a context alone must identify the LMR. A row is one
//! cache line that is never freed, so a stale context reads a row that is dead or holds another
//! LMR, and never freed memory. A lookup takes no lock: it reads the tag of the row before and
//! after the rest, and an unchanged tag shows that all of it belongs to one LMR.
//!
//! A context consists of the number of the row and the lowest bits of the row's generation, which
//! counts its LMRs. These bits repeat after 4096 LMRs in one row. A freed row is reused after
//! [`RESTING`] others were freed, so a stale context can match another LMR after 16 million frees
//! at the earliest; the LMR cache compares 32 bits of the generation.

use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::OnceLock;

use crate::handle::Handle;
use crate::object::ia::MAX_LMRS;
use crate::refusal::Unusable;
use crate::types::MemPrivileges;
use dat_engine::memory;
use dat_engine::sync::Mutex;

/// Row 0 is never used, so that no context is 0.
pub(super) const CAPACITY: u32 = MAX_LMRS;
/// The bits of a context that number the row.
const ROW_BITS: u32 = MAX_LMRS.count_ones();
const _: () = assert!(CAPACITY == (1 << ROW_BITS) - 1);
/// The number of rows in a chunk of 64 KiB.
const CHUNK: usize = 1024;
const CHUNKS: usize = (1 << ROW_BITS) / CHUNK;
/// How many rows are freed before a freed row is reused, while fresh rows are left.
const RESTING: usize = 4096;

static TABLE: Table = Table::new(RESTING);

/// The contents of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Contents {
    pub(super) address: u64,
    pub(super) length: u64,
    pub(super) key: u32,
    /// The handle of its zone.
    pub(super) pz: usize,
    pub(super) privileges: MemPrivileges,
    /// The handle of the LMR.
    pub(super) handle: usize,
}

/// An LMR that a segment may use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found<'a> {
    /// The tag of its row.
    pub(super) tag: &'a AtomicU64,
    /// The value of the tag while the row holds this LMR.
    pub(super) seen: u64,
    /// Its first address.
    pub(super) first: u64,
    /// Its length in bytes.
    pub(super) bytes: u64,
    /// The device's key.
    pub(super) key: u32,
}

#[repr(align(64))]
struct Row {
    /// Upper half: the generation, which counts the row's LMRs. Lower half: the context of the LMR
    /// in the row; in an empty row, a context of another row, so that no lookup matches.
    tag: AtomicU64,
    address: AtomicU64,
    length: AtomicU64,
    pz: AtomicUsize,
    key: AtomicU32,
    privileges: AtomicU32,
    handle: AtomicUsize,
}

const _: () = assert!(size_of::<Row>() == 64);

impl Row {
    fn dead(number: u32) -> Self {
        Self {
            tag: AtomicU64::new(dead_tag(0, number)),
            address: AtomicU64::new(0),
            length: AtomicU64::new(0),
            key: AtomicU32::new(0),
            pz: AtomicUsize::new(0),
            privileges: AtomicU32::new(0),
            handle: AtomicUsize::new(0),
        }
    }
}

/// Returns the context of the n-th LMR in a row.
const fn context_of(generation: u32, number: u32) -> u32 {
    generation << ROW_BITS | number
}

fn live_tag(generation: u32, number: u32) -> u64 {
    u64::from(generation) << 32 | u64::from(context_of(generation, number))
}

fn dead_tag(generation: u32, number: u32) -> u64 {
    u64::from(generation) << 32 | u64::from(number ^ 1)
}

const fn generation_of(tag: u64) -> u32 {
    (tag >> 32) as u32
}

/// Returns the context in a tag.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "the lower half is meant")]
const fn holds(tag: u64) -> u32 {
    tag as u32
}

struct Table {
    /// See [`RESTING`].
    rest: usize,
    chunks: [OnceLock<Box<[Row; CHUNK]>>; CHUNKS],
    free: Mutex<Free>,
}

struct Free {
    /// Rows below this number have been used at least once.
    used: u32,
    /// The freed rows: the one freed first, the last one, and their number. Each has the number of
    /// the next one in its `address`.
    first: u32,
    last: u32,
    resting: usize,
}

impl Table {
    const fn new(rest: usize) -> Self {
        Self {
            rest,
            chunks: [const { OnceLock::new() }; CHUNKS],
            free: Mutex::new(Free {
                used: 1,
                first: 0,
                last: 0,
                resting: 0,
            }),
        }
    }

    /// Returns the row of a context, if it was ever used.
    #[inline(always)]
    fn row(&self, context: u32) -> Option<&Row> {
        let number = (context & CAPACITY) as usize;
        // Both indices are in range because of their sizes, so they are not checked again.
        let chunk = self.chunks[number / CHUNK].get()?;
        Some(&chunk[number % CHUNK])
    }

    /// Stores an LMR in a row and returns its context; `None` if no row is left.
    fn insert(&self, contents: &Contents) -> Option<u32> {
        let mut free = self.free.lock();
        let is_fresh = free.used <= CAPACITY
            && free.resting < self.rest
            && self.chunk(free.used as usize / CHUNK).is_some();
        let number = if is_fresh {
            free.used
        } else if free.resting > 0 {
            free.first
        } else {
            return None;
        };
        let chunk = self.chunk(number as usize / CHUNK)?;
        let row = &chunk[number as usize % CHUNK];
        if is_fresh {
            free.used += 1;
        } else {
            free.resting -= 1;
            // A row's number has 32 bits.
            free.first = row.address.load(Ordering::Relaxed) as u32;
        }
        // A reader that sees new contents also sees the end of the previous LMR, which was stored
        // before the lock was last released.
        fence(Ordering::Release);
        row.address.store(contents.address, Ordering::Relaxed);
        row.length.store(contents.length, Ordering::Relaxed);
        row.key.store(contents.key, Ordering::Relaxed);
        row.pz.store(contents.pz, Ordering::Relaxed);
        row.privileges
            .store(contents.privileges.bits(), Ordering::Relaxed);
        row.handle.store(contents.handle, Ordering::Relaxed);
        let generation = generation_of(row.tag.load(Ordering::Relaxed)).wrapping_add(1);
        // A reader that sees this tag also sees its contents.
        row.tag
            .store(live_tag(generation, number), Ordering::Release);
        Some(context_of(generation, number))
    }

    /// Clears an LMR's row: its context is no longer found.
    fn remove(&self, context: u32) {
        let Some(row) = self.row(context) else {
            return;
        };
        let number = context & CAPACITY;
        let generation = generation_of(row.tag.load(Ordering::Relaxed));
        row.tag
            .store(dead_tag(generation, number), Ordering::Relaxed);
        let mut free = self.free.lock();
        match self.row(free.last).filter(|_| free.resting > 0) {
            Some(last) => {
                // A reader that sees the number also sees the end of the LMR before, as in `insert`.
                fence(Ordering::Release);
                last.address.store(u64::from(number), Ordering::Relaxed);
            }
            None => free.first = number,
        }
        free.last = number;
        free.resting += 1;
    }

    /// Returns a chunk, which is made first if none of its rows was used; `None` if there is no
    /// memory for it. Called under the lock.
    fn chunk(&self, at: usize) -> Option<&[Row; CHUNK]> {
        let place = &self.chunks[at];
        if place.get().is_none() {
            let mut rows = Vec::new();
            let fallible = memory::Call::fallible();
            rows.try_reserve_exact(CHUNK).ok()?;
            drop(fallible);
            // Row numbers are 32 bits wide.
            let first = (at * CHUNK) as u32;
            rows.extend((first..).take(CHUNK).map(Row::dead));
            let rows = rows.into_boxed_slice();
            let _ = place.set(rows.try_into().ok().expect("as many as the chunk has"));
        }
        place.get().map(|rows| &**rows)
    }

    /// See [`lookup`].
    #[inline(always)]
    fn lookup(
        &self,
        context: u32,
        address: u64,
        length: u64,
        pz: usize,
        need: MemPrivileges,
    ) -> Result<Found<'_>, Unusable> {
        let Some(row) = self.row(context) else {
            return Err(Unusable::NoLmr { context });
        };
        let tag = row.tag.load(Ordering::Acquire);
        let first = row.address.load(Ordering::Relaxed);
        let bytes = row.length.load(Ordering::Relaxed);
        let key = row.key.load(Ordering::Relaxed);
        let zone = row.pz.load(Ordering::Relaxed);
        let privileges = row.privileges.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        // An unchanged tag shows that all of it belongs to one LMR.
        let again = row.tag.load(Ordering::Relaxed);
        let found = tag == again && holds(tag) == context;
        let same_pz = zone == pz;
        let privileged = need.bits() & !privileges == 0;
        let offset = address.wrapping_sub(first);
        if found && same_pz && privileged && offset <= bytes && length <= bytes - offset {
            return Ok(Found {
                tag: &row.tag,
                seen: tag,
                first,
                bytes,
                key,
            });
        }
        Err(match (found, same_pz, privileged) {
            (false, ..) => Unusable::NoLmr { context },
            (_, false, _) => Unusable::Zone {
                context,
                lmr: zone,
                needed: pz,
            },
            (.., false) => Unusable::Privileges {
                context,
                has: MemPrivileges::from_bits_retain(privileges),
                need,
            },
            _ => Unusable::Outside {
                context,
                address,
                length,
                first,
                bytes,
            },
        })
    }
}

/// Returns the handle of the LMR that a context names now. `None` if it names no LMR, or is changing.
pub(super) fn handle_of(context: u32) -> Option<Handle> {
    let row = TABLE.row(context)?;
    let tag = row.tag.load(Ordering::Acquire);
    let handle = row.handle.load(Ordering::Relaxed);
    fence(Ordering::Acquire);
    let again = row.tag.load(Ordering::Relaxed);
    Handle::from_bits(handle).filter(|_| tag == again && holds(tag) == context)
}

/// A row of the table, released when this is dropped.
#[derive(Debug)]
pub(super) struct OwnedRow {
    context: u32,
}

impl OwnedRow {
    /// Returns `None` if the table is full.
    pub(super) fn new(contents: &Contents) -> Option<Self> {
        let context = TABLE.insert(contents)?;
        Some(Self { context })
    }

    /// Returns the context of the LMR; never 0.
    pub(super) fn context(&self) -> u32 {
        self.context
    }
}

impl Drop for OwnedRow {
    fn drop(&mut self) {
        TABLE.remove(self.context);
    }
}

/// Returns the LMR of a segment of `length` bytes, not 0, at `address`, for use in zone `pz` with
/// all privileges of `need`. Takes no lock, and never waits.
///
/// # Errors
/// In this order, if several things are wrong:
/// - No LMR has this context: `DAT_PRIVILEGES_VIOLATION` (R12).
/// - The LMR is of another zone: `DAT_PROTECTION_VIOLATION` (R11).
/// - It lacks a privilege: `DAT_PRIVILEGES_VIOLATION` (R12).
/// - The segment is not all inside: `DAT_INVALID_PARAMETER` (R10).
#[inline]
pub(super) fn lookup(
    context: u32,
    address: u64,
    length: u64,
    pz: usize,
    need: MemPrivileges,
) -> Result<Found<'static>, Unusable> {
    TABLE.lookup(context, address, length, pz, need)
}

#[cfg(test)]
mod tests;
