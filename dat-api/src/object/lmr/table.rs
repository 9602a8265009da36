//! Where posts find what an `lmr_context` stands for.
//!
//! One table for the process, since a context alone must tell the LMR. A row
//! is one cache line that is never given back, so a stale context reads a row
//! that is dead or somebody else's, and no freed memory. A lookup takes no
//! lock: the tag of the row, read before and after the rest, tells whether all
//! of it belongs to one LMR.
//!
//! A context is the number of the row and the lowest bits of how many LMRs it
//! has had. The latter repeat after 4096 LMRs in one row. Rows rest between two LMRs while
//! [`RESTING`] others are freed, so a stale context is taken for another LMR
//! after 16 million frees at the earliest; the table's own check uses 32
//! bits of that number.

use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use std::collections::VecDeque;
use std::sync::OnceLock;

use crate::object::ia::MAX_LMRS;
use crate::status::{DatReturn, ReturnType, Subtype};
use crate::types::MemPrivileges;
use dat_engine::sync::Mutex;

/// Row 0 is never used, so that no context is 0.
pub(super) const CAPACITY: u32 = MAX_LMRS;
/// Bits of a context that number the row.
const ROW_BITS: u32 = MAX_LMRS.count_ones();
const _: () = assert!(CAPACITY == (1 << ROW_BITS) - 1);
/// Rows of one chunk: 64 KiB.
const CHUNK: usize = 1024;
const CHUNKS: usize = (1 << ROW_BITS) / CHUNK;
/// Freed rows that rest while fresh ones are taken.
const RESTING: usize = 4096;

static TABLE: Table = Table::new(RESTING);

/// What a row tells of an LMR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Contents {
    pub(super) address: u64,
    pub(super) length: u64,
    pub(super) key: u32,
    pub(super) pz: u32,
    pub(super) privileges: MemPrivileges,
    /// Of the LMR.
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
    /// Its length.
    pub(super) bytes: u64,
    /// The device's key.
    pub(super) key: u32,
}

#[repr(align(64))]
struct Row {
    /// Upper half: how many LMRs the row has had. Lower half: the context of
    /// the one it holds; while it holds none, a context of another row, so
    /// that no lookup which comes here matches.
    tag: AtomicU64,
    address: AtomicU64,
    length: AtomicU64,
    key: AtomicU32,
    pz: AtomicU32,
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
            pz: AtomicU32::new(0),
            privileges: AtomicU32::new(0),
            handle: AtomicUsize::new(0),
        }
    }
}

/// The context of the n-th LMR in a row.
const fn context_of(births: u32, number: u32) -> u32 {
    births << ROW_BITS | number
}

fn live_tag(births: u32, number: u32) -> u64 {
    u64::from(births) << 32 | u64::from(context_of(births, number))
}

fn dead_tag(births: u32, number: u32) -> u64 {
    u64::from(births) << 32 | u64::from(number ^ 1)
}

/// How many LMRs a row has had, from its tag.
const fn births_of(tag: u64) -> u32 {
    (tag >> 32) as u32
}

/// What the row holds, from its tag.
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
    /// Rows that have ever been used are below.
    used: u32,
    /// Freed rows, longest first.
    resting: VecDeque<u32>,
}

impl Table {
    const fn new(rest: usize) -> Self {
        Self {
            rest,
            chunks: [const { OnceLock::new() }; CHUNKS],
            free: Mutex::new(Free {
                used: 1,
                resting: VecDeque::new(),
            }),
        }
    }

    /// The row of a context, if it was ever used.
    #[inline(always)]
    fn row(&self, context: u32) -> Option<&Row> {
        let number = (context & CAPACITY) as usize;
        // Neither index is checked again: both are below their bounds by
        // their size.
        let chunk = self.chunks[number / CHUNK].get()?;
        Some(&chunk[number % CHUNK])
    }

    /// Gives an LMR a row; nothing if there is none left.
    fn insert(&self, contents: &Contents) -> Option<u32> {
        let mut free = self.free.lock();
        let number = if free.used <= CAPACITY && free.resting.len() < self.rest {
            free.used += 1;
            free.used - 1
        } else {
            free.resting.pop_front()?
        };
        let chunk = self.chunks[number as usize / CHUNK].get_or_init(|| {
            // As wide as row numbers.
            let first = number & !(CHUNK as u32 - 1);
            let rows: Box<[Row]> = (first..).take(CHUNK).map(Row::dead).collect();
            rows.try_into().ok().expect("as many as the chunk has")
        });
        let row = &chunk[number as usize % CHUNK];
        // Whoever sees new contents sees the end of the LMR before, which was
        // stored before the lock was last released.
        fence(Ordering::Release);
        row.address.store(contents.address, Ordering::Relaxed);
        row.length.store(contents.length, Ordering::Relaxed);
        row.key.store(contents.key, Ordering::Relaxed);
        row.pz.store(contents.pz, Ordering::Relaxed);
        row.privileges
            .store(contents.privileges.bits(), Ordering::Relaxed);
        row.handle.store(contents.handle, Ordering::Relaxed);
        let births = births_of(row.tag.load(Ordering::Relaxed)).wrapping_add(1);
        // Whoever sees this tag sees its contents.
        row.tag.store(live_tag(births, number), Ordering::Release);
        Some(context_of(births, number))
    }

    /// Ends an LMR's row: from now on its context is not found.
    fn remove(&self, context: u32) {
        let Some(row) = self.row(context) else {
            return;
        };
        let number = context & CAPACITY;
        let births = births_of(row.tag.load(Ordering::Relaxed));
        row.tag.store(dead_tag(births, number), Ordering::Relaxed);
        let mut free = self.free.lock();
        free.resting.push_back(number);
    }

    /// See [`lookup`].
    #[inline(always)]
    fn lookup(
        &self,
        context: u32,
        address: u64,
        length: u64,
        pz: u32,
        need: MemPrivileges,
    ) -> Result<Found<'_>, DatReturn> {
        let Some(row) = self.row(context) else {
            return Err(no_such_lmr());
        };
        let tag = row.tag.load(Ordering::Acquire);
        let first = row.address.load(Ordering::Relaxed);
        let bytes = row.length.load(Ordering::Relaxed);
        let key = row.key.load(Ordering::Relaxed);
        let zone = row.pz.load(Ordering::Relaxed);
        let privileges = row.privileges.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        // The same before and after: all of it is of one LMR.
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
        Err(refusal(found, same_pz, privileged))
    }
}

/// What a context stands for now: where its row says so, what it says there,
/// and the rest. Nothing if it stands for nothing, or changes just now.
pub(super) fn snapshot(context: u32) -> Option<(&'static AtomicU64, u64, Contents)> {
    let row = TABLE.row(context)?;
    let tag = row.tag.load(Ordering::Acquire);
    let contents = Contents {
        address: row.address.load(Ordering::Relaxed),
        length: row.length.load(Ordering::Relaxed),
        key: row.key.load(Ordering::Relaxed),
        pz: row.pz.load(Ordering::Relaxed),
        privileges: MemPrivileges::from_bits_retain(row.privileges.load(Ordering::Relaxed)),
        handle: row.handle.load(Ordering::Relaxed),
    };
    fence(Ordering::Acquire);
    let again = row.tag.load(Ordering::Relaxed);
    (tag == again && holds(tag) == context).then_some((&row.tag, tag, contents))
}

#[cold]
#[inline(never)]
fn no_such_lmr() -> DatReturn {
    DatReturn::error(ReturnType::PrivilegesViolation, Subtype::NoSubtype)
}

/// Why a segment may not be used; if nothing else is wrong, its place.
#[cold]
#[inline(never)]
fn refusal(found: bool, same_pz: bool, privileged: bool) -> DatReturn {
    let kind = match (found, same_pz, privileged) {
        (true, false, _) => ReturnType::ProtectionViolation,
        (true, true, true) => ReturnType::InvalidParameter,
        (false, _, _) | (true, true, false) => ReturnType::PrivilegesViolation,
    };
    DatReturn::error(kind, Subtype::NoSubtype)
}

/// A row of the table, given back when this is dropped.
#[derive(Debug)]
pub(super) struct Entry {
    context: u32,
}

impl Entry {
    /// Nothing if the table is full.
    pub(super) fn new(contents: &Contents) -> Option<Self> {
        let context = TABLE.insert(contents)?;
        Some(Self { context })
    }

    /// What segments name the LMR by; never 0.
    pub(super) fn context(&self) -> u32 {
        self.context
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        TABLE.remove(self.context);
    }
}

/// The LMR of a segment of `length` bytes, not 0, at `address`, used from zone
/// `pz` with all privileges of `need`. About 35 instructions; takes no lock,
/// waits for nothing.
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
    pz: u32,
    need: MemPrivileges,
) -> Result<Found<'static>, DatReturn> {
    TABLE.lookup(context, address, length, pz, need)
}

#[cfg(test)]
mod tests;
