//! The LMR cache of a queue: most posts of a queue use the LMR of the post before, and find it here
//! by comparing one word and two bounds.

use core::sync::atomic::{AtomicU64, Ordering};

use dat_engine::Segment;

use super::table::{Found, lookup};
use crate::refusal::Unusable;
use crate::types::{LmrSegment, MemPrivileges};

/// The tag of an empty cache, which no row has: both its generation and its row number are 0.
static NOTHING: AtomicU64 = AtomicU64::new(0);

/// An LMR that was looked up for one zone and one set of privileges.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LmrCache(Found<'static>);

impl Default for LmrCache {
    fn default() -> Self {
        Self(Found {
            tag: &NOTHING,
            seen: u64::MAX,
            first: 0,
            bytes: 0,
            key: 0,
        })
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
        pz: usize,
        need: MemPrivileges,
    ) -> Result<Segment, Unusable> {
        if let Some(found) = self.find(segment) {
            return Ok(found);
        }
        let LmrSegment {
            context,
            address,
            length,
        } = segment;
        self.0 = lookup(context, address, length, pz, need)?;
        Ok(engine_segment(segment, self.0.key))
    }

    /// Converts a segment for the engine if it lies in the cached LMR.
    #[inline(always)]
    pub(crate) fn find(&self, segment: LmrSegment) -> Option<Segment> {
        // Each field is read where it is needed, which takes fewer registers.
        let found = &self.0;
        let offset = segment.address.wrapping_sub(found.first);
        let last = found.bytes.checked_sub(segment.length)?;
        // A tag is never reused: the row still holds the same LMR.
        (found.seen as u32 == segment.context
            && found.tag.load(Ordering::Acquire) == found.seen
            && offset <= last)
            .then(|| engine_segment(segment, found.key))
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
    use super::super::table::{Contents, OwnedRow};
    use super::*;
    use crate::status::ReturnType;

    const READ: MemPrivileges = MemPrivileges::LOCAL_READ;

    fn entry(address: u64, key: u32) -> OwnedRow {
        OwnedRow::new(&Contents {
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
                    look_up(context, address, length).unwrap_err().code().kind(),
                    outside
                );
            }
            assert_eq!(look_up(other.context(), 5000, 1), Ok(6));
        }
        assert_eq!(look_up(context, 1000, 1), Ok(5));
        drop(one);
        let gone = look_up(context, 1000, 1).unwrap_err();
        assert_eq!(gone, Unusable::NoLmr { context });
    }
}
