//! WQEs are made of units of 16 bytes: writing one, and the bytes of a data segment.

use core::ptr::NonNull;

use crate::request::Segment;
use crate::wire::InlineHeader;

/// Stores one 16-byte unit of a WQE.
///
/// # Safety
/// 16 writable bytes at `at`, aligned to 8, in ring memory that the device does
/// not read yet.
#[inline(always)]
pub(crate) unsafe fn write_unit(at: NonNull<u8>, words: [u64; 2]) {
    // SAFETY: as the caller promises. A plain store is enough: the barrier
    // before the doorbell record is what makes it visible.
    unsafe { at.cast::<[u64; 2]>().write(words) }
}

/// Returns whether a segment is short enough for a data segment: with one bit
/// more its length would read as an inline header.
#[inline(always)]
pub(crate) fn fits_segment(length: u32) -> bool {
    length & InlineHeader::MARK == 0
}

/// Returns whether a segment is neither empty nor too long for a data segment.
#[inline(always)]
pub(crate) fn is_plain(length: u32) -> bool {
    const _: () = assert!(InlineHeader::MARK == 1 << 31);
    length as i32 > 0
}

/// Returns the bytes of a data segment: [`DataSegment::new`] with fewer instructions.
#[inline(always)]
pub(crate) fn data_words(segment: &Segment) -> [u64; 2] {
    // SAFETY: 16 bytes without padding, aligned to 8.
    let [addr, length_lkey] = unsafe { core::ptr::from_ref(segment).cast::<[u64; 2]>().read() };
    // In memory the length precedes the key.
    let length_lkey = match cfg!(target_endian = "little") {
        true => length_lkey.rotate_left(32),
        false => length_lkey,
    };
    [length_lkey.to_be(), addr.to_be()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::DataSegment;

    #[test]
    fn words_and_fields_make_the_same_segment() {
        let segment = Segment {
            addr: 0x1122_3344_5566_7788,
            length: 0x99aa_bbcc,
            lkey: 0x0d0e_0f10,
        };
        assert_eq!(data_words(&segment), DataSegment::new(&segment).to_words());
        assert_eq!(DataSegment::new(&segment).segment(), segment);
    }
}
