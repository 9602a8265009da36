//! The LMR cache of a queue: most posts of a queue use one of the two LMRs that it used last, and
//! find it here by comparing one word and two bounds.

use core::sync::atomic::{AtomicU64, Ordering};

use dat_engine::Segment;

use super::table::{Found, lookup};
use crate::status::DatReturn;
use crate::types::{LmrSegment, MemPrivileges};

/// The tag of an empty cache, which no row has: both its generation and its row number are 0.
static NOTHING: AtomicU64 = AtomicU64::new(0);

/// Two LMRs that were looked up for one zone and one set of privileges.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LmrCache {
    latest: Found<'static>,
    /// The one that `latest` has replaced. Finding a segment in it changes nothing, so posts may
    /// alternate between the two.
    previous: Found<'static>,
}

impl Default for LmrCache {
    fn default() -> Self {
        let nothing = Found {
            tag: &NOTHING,
            seen: u64::MAX,
            first: 0,
            bytes: 0,
            key: 0,
        };
        Self {
            latest: nothing,
            previous: nothing,
        }
    }
}

impl LmrCache {
    /// Converts a segment for the engine, and caches its LMR. `pz` and `need` are the same in every
    /// call on one cache. The caller refuses lengths that do not fit 32 bits.
    ///
    /// # Errors
    /// As [`lookup`].
    #[inline(always)]
    pub(crate) fn lookup(
        &mut self,
        segment: LmrSegment,
        pz: u32,
        need: MemPrivileges,
    ) -> Result<Segment, DatReturn> {
        if let Some(found) = self.find(segment) {
            return Ok(found);
        }
        let LmrSegment {
            context,
            address,
            length,
        } = segment;
        let found = lookup(context, address, length, pz, need)?;
        self.previous = core::mem::replace(&mut self.latest, found);
        Ok(engine_segment(segment, found.key))
    }

    /// Converts a segment for the engine if it lies in a cached LMR.
    #[inline(always)]
    pub(crate) fn find(&self, segment: LmrSegment) -> Option<Segment> {
        match self.latest.segment(segment) {
            None => {
                core::hint::cold_path();
                self.previous.segment(segment)
            }
            found => found,
        }
    }
}

impl Found<'_> {
    /// Converts a segment for the engine if it lies in this LMR, and this LMR is still there.
    #[inline(always)]
    fn segment(&self, segment: LmrSegment) -> Option<Segment> {
        // Each field is read where it is needed, which takes fewer registers.
        let offset = segment.address.wrapping_sub(self.first);
        let last = self.bytes.checked_sub(segment.length)?;
        // A tag is never reused: the row still holds the same LMR.
        (self.seen as u32 == segment.context
            && self.tag.load(Ordering::Acquire) == self.seen
            && offset <= last)
            .then(|| engine_segment(segment, self.key))
    }
}

#[inline(always)]
fn engine_segment(segment: LmrSegment, key: u32) -> Segment {
    Segment {
        addr: segment.address,
        length: segment.length as u32,
        lkey: key,
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::{Contents, Entry};
    use super::*;
    use crate::status::ReturnType;

    const READ: MemPrivileges = MemPrivileges::LOCAL_READ;

    fn entry(address: u64, key: u32) -> Entry {
        Entry::new(&Contents {
            address,
            length: 100,
            key,
            pz: 7,
            privileges: READ,
            handle: 0,
        })
        .expect("a row")
    }

    #[test]
    fn the_two_lmrs_used_last_are_found_without_a_lookup() {
        let lmrs = [entry(1000, 5), entry(5000, 6), entry(9000, 7)];
        let mut cache = LmrCache::default();
        let segments = [1000, 5000, 9000].map(|address| LmrSegment {
            context: lmrs[address as usize / 4000].context(),
            address,
            length: 100,
        });
        let keys =
            |cache: &LmrCache| segments.map(|segment| cache.find(segment).map(|found| found.lkey));
        assert_eq!(keys(&cache), [None; 3]);
        for (at, expected) in [
            (0, [Some(5), None, None]),
            (1, [Some(5), Some(6), None]),
            (0, [Some(5), Some(6), None]),
            (2, [None, Some(6), Some(7)]),
            (1, [None, Some(6), Some(7)]),
            (0, [Some(5), None, Some(7)]),
        ] {
            assert!(cache.lookup(segments[at], 7, READ).is_ok());
            assert_eq!(keys(&cache), expected);
        }
        let [first, second, third] = lmrs;
        drop(third);
        assert_eq!(keys(&cache), [Some(5), None, None], "freed");
        drop((first, second));
        assert_eq!(keys(&cache), [None; 3]);
    }

    #[test]
    fn r10_r11_r12_cached_lmrs_are_checked_like_others() {
        let mut cache = LmrCache::default();
        let mut look_up = |context, address, length| {
            let segment = LmrSegment {
                context,
                address,
                length,
            };
            cache.lookup(segment, 7, READ).map(|found| found.lkey)
        };
        let (one, other) = (entry(1000, 5), entry(5000, 6));
        let context = one.context();
        for _ in 0..2 {
            assert_eq!(look_up(context, 1000, 100), Ok(5));
            assert_eq!(look_up(context, 1099, 1), Ok(5));
            let outside = Some(ReturnType::InvalidParameter);
            for (address, length) in [
                (999, 1),
                (1000, 101),
                (1099, 2),
                (1101, 1),
                (1050, u64::MAX),
            ] {
                assert_eq!(
                    look_up(context, address, length).unwrap_err().kind(),
                    outside
                );
            }
            assert_eq!(look_up(other.context(), 5000, 1), Ok(6));
        }
        assert_eq!(look_up(context, 1000, 1), Ok(5));
        drop(one);
        let gone = look_up(context, 1000, 1).unwrap_err();
        assert_eq!(gone.kind(), Some(ReturnType::PrivilegesViolation));
    }
}
