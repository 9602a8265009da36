//! Tables indexed by the object numbers of the device.
//!
//! A number that is freed is reused at once, last in, first out, so that bugs of
//! software with reused numbers show in every test.
//!
//! Decision: `docs/decisions/044-one-host-many-processes.md`

/// Objects by number. A lookup is an array access, for the data path.
#[derive(Debug)]
pub(super) struct Table<T> {
    base: u32,
    limit: u32,
    entries: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Table<T> {
    /// Returns a table for at most `limit` objects, numbered from `base`.
    #[must_use]
    pub(super) fn new(base: u32, limit: u32) -> Self {
        Self {
            base,
            limit,
            entries: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Adds the object that `make` creates for its number. Returns `None` if the
    /// table is full.
    pub(super) fn insert_with(&mut self, make: impl FnOnce(u32) -> T) -> Option<u32> {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None if self.entries.len() < self.limit as usize => {
                self.entries.push(None);
                (self.entries.len() - 1) as u32
            }
            None => return None,
        };
        let number = self.base + slot;
        self.entries[slot as usize] = Some(make(number));
        Some(number)
    }

    /// Removes an object. Its number is reused first.
    pub(super) fn remove(&mut self, number: u32) -> Option<T> {
        let slot = number.checked_sub(self.base)?;
        let object = self.entries.get_mut(slot as usize)?.take()?;
        self.free.push(slot);
        Some(object)
    }

    /// Returns the object with this number.
    #[must_use]
    pub(super) fn get(&self, number: u32) -> Option<&T> {
        self.entries
            .get(number.wrapping_sub(self.base) as usize)?
            .as_ref()
    }

    /// Returns the object with this number.
    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.entries
            .get_mut(number.wrapping_sub(self.base) as usize)?
            .as_mut()
    }

    /// Returns the number of objects.
    #[must_use]
    pub(super) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Iterates over all objects in ascending order of their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let numbered = self.entries.iter().zip(self.base..);
        numbered.filter_map(|(entry, number)| entry.as_ref().map(|object| (number, object)))
    }

    /// Iterates over all objects in ascending order of their numbers.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
        let numbered = self.entries.iter_mut().zip(self.base..);
        numbered.filter_map(|(entry, number)| entry.as_mut().map(|object| (number, object)))
    }
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
}
