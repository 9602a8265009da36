//! Tables indexed by the numbers the device hands out.
//!
//! A number that comes free is handed out again at once, last in, first out:
//! the reuse that software gets wrong happens in every test.

/// Objects by number. Lookup is an index, for the data path.
#[derive(Debug)]
pub(super) struct Table<T> {
    base: u32,
    limit: u32,
    entries: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Table<T> {
    /// A table of at most `limit` objects, numbered from `base`.
    #[must_use]
    pub(super) fn new(base: u32, limit: u32) -> Self {
        Self {
            base,
            limit,
            entries: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Adds the object that `make` builds for its number; `None` when full.
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

    /// Takes an object out; its number is the next one given.
    pub(super) fn remove(&mut self, number: u32) -> Option<T> {
        let slot = number.checked_sub(self.base)?;
        let object = self.entries.get_mut(slot as usize)?.take()?;
        self.free.push(slot);
        Some(object)
    }

    /// The object with that number.
    #[must_use]
    pub(super) fn get(&self, number: u32) -> Option<&T> {
        self.entries
            .get(number.wrapping_sub(self.base) as usize)?
            .as_ref()
    }

    /// The object with that number.
    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.entries
            .get_mut(number.wrapping_sub(self.base) as usize)?
            .as_mut()
    }

    /// How many objects there are.
    #[must_use]
    pub(super) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// All objects, by rising number.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let numbered = self.entries.iter().zip(self.base..);
        numbered.filter_map(|(entry, number)| entry.as_ref().map(|object| (number, object)))
    }

    /// All objects, by rising number.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
        let numbered = self.entries.iter_mut().zip(self.base..);
        numbered.filter_map(|(entry, number)| entry.as_mut().map(|object| (number, object)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_freed_last_is_given_first() {
        let mut table = Table::new(5, 3);
        let numbers: Vec<_> = (0..3).map(|_| table.insert_with(|n| n).unwrap()).collect();
        assert_eq!(numbers, [5, 6, 7]);
        assert_eq!(table.insert_with(|n| n), None, "the limit holds");
        table.remove(5);
        table.remove(7);
        assert_eq!(table.insert_with(|n| n), Some(7));
        assert_eq!(table.insert_with(|n| n), Some(5));
        assert_eq!(table.remove(9), None);
        assert_eq!(table.get(4), None, "below the base is nothing");
    }
}
