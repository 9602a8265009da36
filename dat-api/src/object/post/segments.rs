//! Conversion of DAT's segments to the engine's.

use core::mem::MaybeUninit;

use dat_engine::{PostError, Segment};

use crate::object::ia::MAX_SEGMENTS;
use crate::object::lmr::LmrCache;
use crate::refusal::Refusal;
use crate::types::{LmrSegment, MemPrivileges};

/// The longest segment that the device takes, in bytes.
const LONGEST: u64 = (1 << 31) - 1;

/// The length of the longest segment that a fast path takes, in bytes, at most [`LONGEST`]; 0: it
/// takes none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Longest(u64);

impl Longest {
    pub(crate) const NONE: Self = Self(0);
    /// As long as the device takes.
    pub(crate) const ANY: Self = Self(LONGEST);

    pub(crate) fn new(bytes: u64) -> Self {
        Self(bytes.min(LONGEST))
    }

    /// Returns whether the fast path takes a segment of this length, which is not 0 then.
    #[inline(always)]
    pub(crate) fn allows(self, length: u64) -> bool {
        // SAFETY: see `new`. The hints save the ring's own check of the length; LLVM uses this one
        // for lengths of 64 bits, the other one for those of 32.
        unsafe { core::hint::assert_unchecked(self.0 <= LONGEST) };
        let allowed = length.wrapping_sub(1) < self.0;
        if allowed {
            // SAFETY: 1 to `LONGEST`.
            unsafe { core::hint::assert_unchecked((length as u32).cast_signed() > 0) };
        }
        allowed
    }
}

/// Converts the segments of a post. Segments of length 0 are left out, and their other fields are
/// ignored.
///
/// # Errors
/// What is wrong with a segment.
#[inline(always)]
pub(crate) fn gather<'a>(
    places: &'a mut [MaybeUninit<Segment>; MAX_SEGMENTS],
    count: u32,
    segment: impl Fn(usize) -> LmrSegment,
    lmr_cache: &mut LmrCache,
    zone: usize,
    need: MemPrivileges,
) -> Result<(&'a mut [Segment], u64), Refusal> {
    let mut used = 0;
    let mut total = 0u64;
    for at in 0..count as usize {
        let one = segment(at);
        if one.length == 0 {
            continue;
        }
        let found = lmr_cache
            .lookup(one, zone, need)
            .map_err(|why| Refusal::Segment { at, why })?;
        if one.length > LONGEST {
            return Err(Refusal::LongSegment {
                at,
                length: one.length,
                most: LONGEST,
            });
        }
        // `count` is at most the number of places: the caller has checked it.
        let Some(place) = places.get_mut(used) else {
            let error = PostError::TooManySegments;
            return Err(Refusal::Engine { error });
        };
        place.write(found);
        used += 1;
        total += one.length;
    }
    // SAFETY: the first `used` places have been written.
    Ok((unsafe { places[..used].assume_init_mut() }, total))
}

/// Returns the first segments, cut to `bytes` bytes: a read fills them from the front, at most one
/// in part, and leaves the rest alone.
#[cold]
pub(crate) fn first_bytes(segments: &mut [Segment], mut bytes: u64) -> &mut [Segment] {
    let mut used = 0;
    for segment in segments.iter_mut() {
        if bytes == 0 {
            break;
        }
        segment.length = u64::from(segment.length).min(bytes) as u32;
        bytes -= u64::from(segment.length);
        used += 1;
    }
    &mut segments[..used]
}
