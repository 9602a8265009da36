//! Free WQEs that are not adjacent: a set of ring indices in which the nearest
//! run is found in constant time.
//!
//! There is one bit per index, and for each 64 of them one bit that is set if
//! any of the 64 is. The largest ring, 65,536 WQEs, has 16 words of the upper
//! level.
//!
//! Decision: `docs/decisions/006-srq-posts-runs-of-neighbours.md`

use crate::RingSize;

const BITS: u32 = u64::BITS;

/// A set of indices of a ring of up to 2^16 entries.
#[derive(Debug)]
pub(crate) struct FreeSet {
    words: Box<[u64]>,
    /// Bit `i` of word `j`: whether `words[64 * j + i]` is not 0.
    used: Box<[u64]>,
}

/// A run of adjacent indices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) first: u32,
    pub(crate) last: u32,
}

/// Returns word and bit of an index.
fn place(index: u32) -> (usize, u32) {
    ((index / BITS) as usize, index % BITS)
}

impl FreeSet {
    /// Returns an empty set.
    pub(crate) fn new(size: RingSize) -> Self {
        let words = size.count().div_ceil(BITS);
        Self {
            words: vec![0; words as usize].into(),
            used: vec![0; words.div_ceil(BITS) as usize].into(),
        }
    }

    /// Adds the indices of a ring of that size from `first` to `last`, which may
    /// lie around its end; nothing if `first` follows `last`.
    pub(crate) fn insert_up_to(&mut self, size: RingSize, first: u32, last: u32) {
        let count = size.index(last.wrapping_add(1).wrapping_sub(first)) as u32;
        let before_end = count.min(size.count() - first);
        self.insert(first, before_end);
        self.insert(0, count - before_end);
    }

    /// Adds `count` neighbouring indices.
    fn insert(&mut self, first: u32, count: u32) {
        let (mut at, end) = (first, first + count);
        while at < end {
            let (word, bit) = place(at);
            let length = (end - at).min(BITS - bit);
            self.words[word] |= (u64::MAX >> (BITS - length)) << bit;
            let (summary, bit) = place(word as u32);
            self.used[summary] |= 1 << bit;
            at += length;
        }
    }

    /// Returns the first run at or after `from`; the search wraps around at the
    /// end of the ring. A run ends at the end of a word; the rest is the next
    /// run.
    pub(crate) fn nearest(&self, from: u32) -> Option<Run> {
        let (word, bit) = place(from);
        let behind = self.words[word] & (u64::MAX << bit);
        if behind != 0 {
            return Some(self.first_run(word, behind));
        }
        let word = self.next_word(word)?;
        Some(self.first_run(word, self.words[word]))
    }

    /// Removes a run that [`Self::nearest`] has found.
    pub(crate) fn remove(&mut self, run: Run) {
        let (word, bit) = place(run.first);
        let (_, last) = place(run.last);
        let mask = (u64::MAX << bit) & (u64::MAX >> (BITS - 1 - last));
        self.words[word] &= !mask;
        if self.words[word] == 0 {
            let (summary, bit) = place(word as u32);
            self.used[summary] &= !(1 << bit);
        }
    }

    /// Returns the first run among the bits `bits` of a word, at least one of which is set.
    fn first_run(&self, word: usize, bits: u64) -> Run {
        let bit = bits.trailing_zeros();
        let first = word as u32 * BITS + bit;
        let length = (bits >> bit).trailing_ones();
        Run {
            first,
            last: first + length - 1,
        }
    }

    /// Returns the first word after `word` that holds an index. The search
    /// wraps around and ends at `word` itself.
    fn next_word(&self, word: usize) -> Option<usize> {
        let (summary, bit) = place(word as u32);
        // Two shifts: the bit may be the last.
        let behind = self.used[summary] & (u64::MAX << bit << 1);
        let found = |summary: usize, bits: u64| {
            (bits != 0).then(|| summary * BITS as usize + bits.trailing_zeros() as usize)
        };
        found(summary, behind).or_else(|| {
            let count = self.used.len();
            (1..=count).find_map(|ahead| {
                let summary = (summary + ahead) % count;
                found(summary, self.used[summary])
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_run_goes_up_to_the_end_of_its_word() {
        let size = RingSize::new(256).unwrap();
        let mut set = FreeSet::new(size);
        assert_eq!(set.nearest(9), None);
        set.insert_up_to(size, 60, 69);
        let [low, high] = [(60, 63), (64, 69)].map(|(first, last)| Run { first, last });
        assert_eq!(set.nearest(9), Some(low));
        assert_eq!(set.nearest(70), Some(low), "around the end");
        set.remove(low);
        assert_eq!(set.nearest(60), Some(high));
        set.remove(high);
        assert_eq!(set.nearest(60), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]

        #[test]
        fn the_nearest_run_is_that_of_a_sorted_set(
            log in 1u32..=16,
            steps in prop::collection::vec(
                (any::<u32>(), 0u32..200, any::<u32>(), any::<bool>()), 1..60),
        ) {
            let size = RingSize::new(1 << log).unwrap();
            let index = |counter: u32| size.index(counter) as u32;
            let mut set = FreeSet::new(size);
            let mut model = BTreeSet::new();
            for (start, length, from, takes) in steps {
                // A run never covers the whole ring.
                let length = length.min(size.count() - 1);
                let end = start.wrapping_add(length);
                set.insert_up_to(size, index(start), index(end.wrapping_sub(1)));
                model.extend((0..length).map(|ahead| index(start.wrapping_add(ahead))));
                let from = index(from);
                let first = model.range(from..).chain(model.iter()).next().copied();
                let expected = first.map(|first| {
                    let end_of_word = first | (BITS - 1);
                    let last = (first..=end_of_word)
                        .take_while(|index| model.contains(index))
                        .last()
                        .unwrap();
                    Run { first, last }
                });
                prop_assert_eq!(set.nearest(from), expected);
                if let (true, Some(run)) = (takes, expected) {
                    set.remove(run);
                    (run.first..=run.last).for_each(|index| {
                        model.remove(&index);
                    });
                }
            }
        }
    }
}
