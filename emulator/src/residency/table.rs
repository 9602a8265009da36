//! The registrations, and which of their pages have left the program's memory.

use std::ops::Range;

use super::{Call, NAMES};
use crate::sync::Mutex;

/// The call that removed a page from its address, or 0, and flags.
type Mark = u8;
const CALL: Mark = 0x0f;
/// The call has not returned yet.
const PENDING: Mark = 0x10;
/// The page was there before a call that may remove it.
const OBSERVED: Mark = 0x20;
/// A use of the page was reported.
const REPORTED: Mark = 0x40;

/// A registration.
#[derive(Debug)]
pub(super) struct RegisteredPages {
    start: u64,
    page: u64,
    /// One for each page.
    marks: Box<[Mark]>,
    /// Number of pages that are gone.
    gone: usize,
}

impl RegisteredPages {
    /// Returns an entry for whole pages of this size.
    pub(super) fn new(start: u64, bytes: u64, page: u64) -> Self {
        Self {
            start,
            page,
            marks: vec![0; (bytes / page) as usize].into(),
            gone: 0,
        }
    }

    /// Returns the indices of the pages that `start..end` touches.
    fn pages(&self, start: u64, end: u64) -> Range<usize> {
        if start >= end {
            return 0..0;
        }
        let from = start.saturating_sub(self.start) / self.page;
        let to = end.saturating_sub(self.start).div_ceil(self.page);
        let pages = self.marks.len();
        (from as usize).min(pages)..(to as usize).min(pages)
    }

    fn address(&self, index: usize) -> u64 {
        self.start + index as u64 * self.page
    }
}

/// Neighbouring pages that one call has removed, and its name.
pub(super) type Run = (Range<u64>, &'static str);

#[derive(Debug)]
enum Slot {
    Taken(RegisteredPages),
    /// The index of the next free slot; the number of slots for none.
    Free(usize),
}

/// All registrations.
#[derive(Debug, Default)]
pub(crate) struct Table {
    slots: Vec<Slot>,
    /// The first free slot.
    free: usize,
    /// Number of entries with pages that are gone.
    pub(super) incomplete: usize,
}

/// Adds an entry. Allocates and frees without the lock. Returns the entry's number.
pub(super) fn insert(table: &Mutex<Table>, entry: RegisteredPages) -> u32 {
    let mut larger = Vec::new();
    loop {
        let capacity = {
            let mut table = table.lock();
            if larger.capacity() > table.slots.capacity() {
                larger.append(&mut table.slots);
                std::mem::swap(&mut larger, &mut table.slots);
            }
            if table.has_room() {
                return table.insert(entry);
            }
            table.slots.capacity()
        };
        larger = Vec::with_capacity((2 * capacity).max(64));
    }
}

impl Table {
    fn has_room(&self) -> bool {
        self.free < self.slots.len() || self.slots.len() < self.slots.capacity()
    }

    fn insert(&mut self, entry: RegisteredPages) -> u32 {
        let index = self.free;
        match self.slots.get_mut(index) {
            Some(slot) => {
                if let Slot::Free(next) = std::mem::replace(slot, Slot::Taken(entry)) {
                    self.free = next;
                }
            }
            None => {
                self.slots.push(Slot::Taken(entry));
                self.free = self.slots.len();
            }
        }
        index as u32
    }

    /// Removes an entry, which the caller must free without the lock.
    pub(super) fn remove(&mut self, index: u32) -> Option<RegisteredPages> {
        let slot = self.slots.get_mut(index as usize)?;
        let Slot::Taken(entry) = std::mem::replace(slot, Slot::Free(self.free)) else {
            return None;
        };
        self.free = index as usize;
        self.incomplete -= usize::from(entry.gone > 0);
        Some(entry)
    }

    /// Begins a call that removes the pages in `start..end` if it succeeds.
    pub(crate) fn begin(&mut self, start: u64, end: u64, call: Call) {
        let mark = call as Mark | PENDING;
        self.change(
            start,
            end,
            |old, _| if old & CALL == 0 { mark } else { old },
        );
    }

    /// Ends a call that [`Self::begin`] began.
    pub(crate) fn end(&mut self, start: u64, end: u64, done: bool) {
        self.change(start, end, |old, _| match (old & PENDING, done) {
            (0, _) => old,
            (_, true) => old & !PENDING,
            (_, false) => 0,
        });
    }

    /// Begins a call that may remove pages in `start..end`: those that are `there`, by
    /// their addresses.
    pub(crate) fn observe(&mut self, start: u64, end: u64, mut there: impl FnMut(u64) -> bool) {
        self.change(start, end, |old, page| match old & CALL {
            0 if there(page) => OBSERVED,
            _ => old,
        });
    }

    /// Ends a call that [`Self::observe`] began, after which pages are `gone`.
    pub(crate) fn compare(
        &mut self,
        start: u64,
        end: u64,
        call: Call,
        mut gone: impl FnMut(u64) -> bool,
    ) {
        self.change(start, end, |old, page| match old {
            OBSERVED if gone(page) => call as Mark,
            OBSERVED => 0,
            _ => old,
        });
    }

    /// Changes the marks of all pages that `start..end` touches.
    fn change(&mut self, start: u64, end: u64, mut to: impl FnMut(Mark, u64) -> Mark) {
        for slot in &mut self.slots {
            let Slot::Taken(entry) = slot else { continue };
            let was_complete = entry.gone == 0;
            for index in entry.pages(start, end) {
                let new = to(entry.marks[index], entry.address(index));
                let old = std::mem::replace(&mut entry.marks[index], new);
                entry.gone += usize::from(new & CALL != 0);
                entry.gone -= usize::from(old & CALL != 0);
            }
            self.incomplete += usize::from(was_complete);
            self.incomplete -= usize::from(entry.gone == 0);
        }
    }

    /// Returns the pages that one call has removed if the use of `length` bytes at
    /// `address` by an entry finds some, and whether this is the first such use.
    pub(super) fn find_use(
        &mut self,
        index: u32,
        address: u64,
        length: u64,
    ) -> Option<(Run, bool)> {
        let Some(Slot::Taken(entry)) = self.slots.get_mut(index as usize) else {
            return None;
        };
        let mut used = entry.pages(address, address.saturating_add(length));
        let at = used.find(|index| entry.marks[*index] & CALL != 0)?;
        let (call, is_new) = (entry.marks[at] & CALL, entry.marks[at] & REPORTED == 0);
        let others = |mark: &Mark| *mark & CALL != call;
        let from = entry.marks[..at].iter().rposition(others);
        let from = from.map_or(0, |before| before + 1);
        let to = entry.marks[at..].iter().position(others);
        let to = to.map_or(entry.marks.len(), |behind| at + behind);
        for mark in &mut entry.marks[from..to] {
            *mark |= REPORTED;
        }
        let pages = entry.address(from)..entry.address(to);
        Some(((pages, NAMES[usize::from(call)]), is_new))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 0x1000;

    fn table(ranges: &[(u64, u64)]) -> Mutex<Table> {
        let table = Mutex::new(Table::default());
        for (start, end) in ranges {
            insert(&table, RegisteredPages::new(*start, end - start, PAGE));
        }
        table
    }

    fn used(table: &mut Table, index: u32, address: u64, length: u64) -> Option<(u64, u64, &str)> {
        let ((pages, call), _) = table.find_use(index, address, length)?;
        Some((pages.start, pages.end, call))
    }

    #[test]
    fn a_use_finds_the_pages_that_one_call_has_removed_in_every_registration() {
        let mut table = table(&[(0x10000, 0x14000), (0x12000, 0x18000), (0x20000, 0x21000)]);
        let table = table.get_mut();
        table.begin(0x11000, 0x13000, Call::Munmap);
        table.end(0x11000, 0x13000, true);
        assert_eq!(table.incomplete, 2);
        assert_eq!(used(table, 0, 0x10000, 0x1000), None);
        let run = Some((0x11000, 0x13000, "munmap"));
        assert_eq!(used(table, 0, 0x10fff, 2), run);
        assert_eq!(used(table, 0, 0x12fff, 0x1000), run);
        assert_eq!(used(table, 0, 0x13000, 0x1000), None);
        assert_eq!(used(table, 0, 0x12000, 0), None);
        assert_eq!(
            used(table, 1, 0x12000, 8),
            Some((0x12000, 0x13000, "munmap"))
        );
        assert_eq!(used(table, 2, 0x20000, 8), None);
        // The first call that removes a page is the one that matters.
        table.begin(0x12000, 0x14000, Call::DontNeed);
        table.end(0x12000, 0x14000, true);
        let run = (0x13000, 0x14000, "madvise(MADV_DONTNEED)");
        assert_eq!(used(table, 0, 0x13000, 8), Some(run));
        for index in [0, 1] {
            assert!(table.remove(index).is_some() && table.remove(index).is_none());
        }
        assert_eq!(table.incomplete, 0);
    }

    #[test]
    fn a_call_that_fails_leaves_what_was_there() {
        let mut table = table(&[(0x10000, 0x14000)]);
        let table = table.get_mut();
        table.begin(0x10000, 0x11000, Call::Munmap);
        table.end(0x10000, 0x11000, true);
        table.begin(0x10000, 0x13000, Call::Mremap);
        assert!(used(table, 0, 0x12000, 1).is_some(), "in progress");
        table.end(0x10000, 0x13000, false);
        assert_eq!(used(table, 0, 0x11000, 0x3000), None);
        assert!(used(table, 0, 0x10000, 1).is_some());
    }

    #[test]
    fn pages_that_were_there_before_a_call_and_not_after_it_are_gone() {
        let mut table = table(&[(0x10000, 0x14000)]);
        let table = table.get_mut();
        table.observe(0x10800, 0x13800, |page| page != 0x11000);
        assert_eq!(used(table, 0, 0x10000, 0x4000), None, "not yet");
        table.compare(0x10800, 0x13800, Call::Free, |page| page != 0x13000);
        let run = (0x10000, 0x11000, "free");
        assert_eq!(used(table, 0, 0x10000, 0x1000), Some(run));
        assert_eq!(used(table, 0, 0x11000, 0x1000), None);
        assert_eq!(used(table, 0, 0x12000, 1), Some((0x12000, 0x13000, "free")));
        assert_eq!(used(table, 0, 0x13000, 0x1000), None);
    }

    #[test]
    fn neighbouring_pages_of_one_call_are_reported_once() {
        let mut table = table(&[(0x10000, 0x20000)]);
        let table = table.get_mut();
        table.begin(0x11000, 0x13000, Call::Munmap);
        table.begin(0x13000, 0x15000, Call::Mremap);
        let is_new = |table: &mut Table, at| table.find_use(0, at, 1).unwrap().1;
        assert!(is_new(table, 0x12000));
        assert!(!is_new(table, 0x11000));
        assert!(is_new(table, 0x13000), "another call");
    }

    #[test]
    fn numbers_are_reused_and_there_is_room_for_any_number() {
        let ranges: Vec<_> = (1..=1000).map(|n| (n * PAGE, (n + 1) * PAGE)).collect();
        let table = table(&ranges);
        for index in [7, 9] {
            assert!(table.lock().remove(index).is_some());
        }
        for index in [9, 7, 1000] {
            assert_eq!(insert(&table, RegisteredPages::new(0, PAGE, PAGE)), index);
        }
    }
}
