//! Tables indexed by the object numbers of the device.
//!
//! The numbers of CQs, SRQs, keys and the like are reused at once, last in, first out, so
//! that bugs of software with reused numbers show in every test. QP numbers are given out
//! in a circle, as devices do: peers and connection managers remember the number of a
//! closed connection for a while. `--nasty reuse` reuses them at once, too.
//!
//! Decision: `docs/decisions/044-one-host-many-processes.md`

/// The numbers of one page of a table.
const PAGE: usize = 64;

/// Objects by number. A lookup is two array accesses, for the data path.
#[derive(Debug)]
pub(super) struct Table<T> {
    base: u32,
    limit: u32,
    /// A page without objects takes no memory.
    pages: Vec<Option<Page<T>>>,
    len: usize,
    order: Order,
}

#[derive(Debug)]
struct Page<T> {
    len: usize,
    entries: Box<[Option<T>]>,
}

/// Which number a new object gets.
#[derive(Debug)]
enum Order {
    /// The one that was freed last, else the lowest that was never used.
    LastFreed { freed: Vec<u32>, unused: u32 },
    /// The next free one after the last, of `size` numbers in a circle.
    Circle { next: u32, size: u32 },
}

impl<T> Table<T> {
    /// Returns a table for at most `limit` objects, numbered from `base`, whose numbers are
    /// reused at once.
    #[must_use]
    pub(super) fn new(base: u32, limit: u32) -> Self {
        let freed = Vec::new();
        Self::with_order(base, limit, Order::LastFreed { freed, unused: 0 })
    }

    /// Returns a table for at most `limit` objects, whose `size` numbers from `base` are
    /// given out in a circle.
    #[must_use]
    pub(super) fn circular(base: u32, limit: u32, size: u32) -> Self {
        let limit = limit.min(size);
        Self::with_order(base, limit, Order::Circle { next: 0, size })
    }

    fn with_order(base: u32, limit: u32, order: Order) -> Self {
        Self {
            base,
            limit,
            pages: Vec::new(),
            len: 0,
            order,
        }
    }

    /// Adds the object that `make` creates for its number. Returns `None` if the
    /// table is full.
    pub(super) fn insert_with(&mut self, make: impl FnOnce(u32) -> T) -> Option<u32> {
        if self.len >= self.limit as usize {
            return None;
        }
        let slot = self.free_slot();
        let number = self.base + slot;
        let (page, entry) = place(slot);
        if page >= self.pages.len() {
            self.pages.resize_with(page + 1, || None);
        }
        let page = self.pages[page].get_or_insert_with(|| Page {
            len: 0,
            entries: (0..PAGE).map(|_| None).collect(),
        });
        page.entries[entry] = Some(make(number));
        page.len += 1;
        self.len += 1;
        Some(number)
    }

    /// Returns a slot without an object. There must be one.
    fn free_slot(&mut self) -> u32 {
        loop {
            let slot = match &mut self.order {
                Order::LastFreed { freed, unused } => freed.pop().unwrap_or_else(|| {
                    *unused += 1;
                    *unused - 1
                }),
                Order::Circle { next, size } => {
                    let slot = *next;
                    *next = (slot + 1) % *size;
                    slot
                }
            };
            if self.get(self.base + slot).is_none() {
                return slot;
            }
        }
    }

    /// Removes an object.
    pub(super) fn remove(&mut self, number: u32) -> Option<T> {
        let slot = number.checked_sub(self.base)?;
        let (index, entry) = place(slot);
        let kept = self.pages.get_mut(index)?;
        let page = kept.as_mut()?;
        let object = page.entries[entry].take()?;
        page.len -= 1;
        if page.len == 0 {
            *kept = None;
        }
        self.len -= 1;
        if let Order::LastFreed { freed, .. } = &mut self.order {
            freed.push(slot);
        }
        Some(object)
    }

    /// Returns the object with this number.
    #[must_use]
    pub(super) fn get(&self, number: u32) -> Option<&T> {
        let (page, entry) = place(number.wrapping_sub(self.base));
        self.pages.get(page)?.as_ref()?.entries[entry].as_ref()
    }

    /// Returns the object with this number.
    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        let (page, entry) = place(number.wrapping_sub(self.base));
        self.pages.get_mut(page)?.as_mut()?.entries[entry].as_mut()
    }

    /// Returns the number of objects.
    #[must_use]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Iterates over all objects in ascending order of their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let pages = self.pages.iter().zip((self.base..).step_by(PAGE));
        pages.flat_map(|(page, first)| {
            let entries = page.iter().flat_map(|page| &page.entries);
            let numbered = entries.zip(first..);
            numbered.filter_map(|(entry, number)| entry.as_ref().map(|object| (number, object)))
        })
    }

    /// Iterates over all objects in ascending order of their numbers.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
        let pages = self.pages.iter_mut().zip((self.base..).step_by(PAGE));
        pages.flat_map(|(page, first)| {
            let entries = page.iter_mut().flat_map(|page| &mut page.entries);
            let numbered = entries.zip(first..);
            numbered.filter_map(|(entry, number)| entry.as_mut().map(|object| (number, object)))
        })
    }
}

/// Returns the page of a slot, and the entry in it.
#[inline]
fn place(slot: u32) -> (usize, usize) {
    let slot = slot as usize;
    (slot / PAGE, slot % PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_freed_last_is_reused_first() {
        let mut table = Table::new(5, 3);
        let numbers: Vec<_> = (0..3).map(|_| table.insert_with(|n| n).unwrap()).collect();
        assert_eq!(numbers, [5, 6, 7]);
        assert_eq!(table.insert_with(|n| n), None, "the table is full");
        table.remove(5);
        table.remove(7);
        assert_eq!(table.insert_with(|n| n), Some(7));
        assert_eq!(table.insert_with(|n| n), Some(5));
        assert_eq!(table.remove(9), None);
        assert_eq!(table.get(4), None, "below the base");
    }

    #[test]
    fn in_a_circle_a_number_comes_back_when_all_others_were_given_out() {
        let size = 3 * PAGE as u32;
        let mut table = Table::circular(5, 2, size);
        let kept = table.insert_with(|n| n).unwrap();
        assert_eq!(kept, 5);
        for lap in 0..3 {
            for expected in 6..5 + size {
                assert_eq!(table.insert_with(|n| n), Some(expected), "lap {lap}");
                assert_eq!(table.insert_with(|n| n), None, "the table is full");
                assert_eq!(table.get(kept), Some(&kept));
                assert_eq!(table.remove(expected), Some(expected));
            }
        }
        let pages = table.pages.iter().flatten().count();
        assert_eq!(
            (pages, table.len()),
            (1, 1),
            "unused numbers take no memory"
        );
    }

    #[test]
    fn a_circle_has_room_for_all_of_its_numbers() {
        let mut table = Table::circular(1, 1000, 600);
        while table.insert_with(|n| n).is_some() {}
        assert!(table.iter().map(|(number, _)| number).eq(1..601));
        table.remove(300);
        assert_eq!(table.insert_with(|n| n), Some(300));
        for (number, object) in table.iter_mut() {
            assert_eq!(*object, number);
        }
    }
}
