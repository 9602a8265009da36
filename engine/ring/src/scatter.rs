//! Small payloads that the device left in the CQE ("scatter to CQE").
//!
//! The device may put up to 64 bytes of a message into the completion instead
//! of the memory that the request named; polling then copies them there, led by
//! the segments of the request, which are still in the ring.
//!
//! Decision: `docs/decisions/014-payload-in-cqe.md`

use core::mem::MaybeUninit;
use core::ptr::NonNull;

use crate::complete::Slot;
use crate::mmio::{DmaCell, write_message, write_short};
use crate::wire::{Be32, Be64, DataSegment, UNIT, data_offset};

/// The payload, copied out of the CQE: at most 64 bytes.
pub type Payload = [u64; 8];

/// The rest of a payload after some segments are filled.
struct Scatter<'a> {
    bytes: &'a [u8],
    wanted: usize,
}

/// Returns a payload's bytes in memory order.
fn bytes_of(payload: &Payload) -> [u8; 64] {
    let mut bytes = [0; 64];
    for (chunk, word) in bytes.chunks_exact_mut(8).zip(payload) {
        chunk.copy_from_slice(&word.to_ne_bytes());
    }
    bytes
}

impl Scatter<'_> {
    /// Copies to one segment. Returns whether all is copied.
    ///
    /// # Safety
    /// The segment's memory is writable for its length and nothing else uses it.
    unsafe fn fill(&mut self, segment: &DataSegment) -> bool {
        let segment = segment.segment();
        let take = self
            .wanted
            .min(segment.length as usize)
            .min(self.bytes.len());
        let (now, later) = self.bytes.split_at(take);
        let to = core::ptr::with_exposed_provenance_mut::<u8>(segment.addr as usize);
        if take > 0 {
            // SAFETY: `take` is at most the segment's length, and its memory is
            // the application's to receive into, as the caller promises.
            unsafe { write_message(now.as_ptr(), to, take) };
        }
        self.bytes = later;
        self.wanted -= take;
        self.wanted == 0
    }
}

/// Reads the 16-byte unit at `at` as it is now.
///
/// # Safety
/// 16 readable bytes, aligned to 8.
pub(crate) unsafe fn read_unit(at: NonNull<u8>) -> [u64; 2] {
    let at = at.cast::<u64>();
    // SAFETY: the second word of the 16 bytes.
    let high = unsafe { at.add(1) };
    // SAFETY: readable and aligned, as the caller promises.
    let (low, high) = unsafe { (DmaCell::new(at), DmaCell::new(high)) };
    [low.read(), high.read()]
}

/// The first segment of a receive, copied out of the ring.
///
/// It is copied before it is used, as [`Units`] are.
#[derive(Clone, Copy, Debug)]
pub struct FirstSegment {
    addr: u64,
    length: u32,
}

impl FirstSegment {
    /// Reads the segment at `at` as it is now.
    ///
    /// # Safety
    /// A data segment in a ring.
    #[inline(always)]
    pub(crate) unsafe fn read(at: NonNull<u8>) -> Self {
        // SAFETY: two fields of the segment, aligned; readable as the caller promises.
        let (addr, length) = unsafe {
            (
                DmaCell::new(at.add(data_offset::ADDR).cast::<u64>()),
                DmaCell::new(at.add(data_offset::LENGTH).cast::<u32>()),
            )
        };
        Self {
            addr: Be64::from_bits(addr.read()).get(),
            length: Be32::from_bits(length.read()).get(),
        }
    }
}

/// Copies the `length` bytes of payload at the beginning of the CQE in `slot` to the
/// first segment of its receive. Returns `false`, with nothing copied, if that is not
/// all there is to do: there are no bytes, more than 32 (which only a faulty device
/// writes), or more than the segment takes. Makes no outlined call.
///
/// # Safety
/// As for [`scatter`]; and the entry has been written.
#[inline(always)]
pub unsafe fn scatter_to_first(slot: Slot, length: u32, to: FirstSegment) -> bool {
    if length > to.length {
        return false;
    }
    let memory = core::ptr::with_exposed_provenance_mut::<u8>(to.addr as usize);
    // SAFETY: an entry has 64 bytes. The memory is writable for the segment's length,
    // which is no less.
    unsafe { write_short(memory, slot.first_half(), length as usize) }
}

/// The segments of one request that a payload goes to, copied out of the ring.
///
/// They are copied before they are used, so that the caller can check in between
/// that the request is still the one that completed.
pub struct Units {
    /// The first `len` are initialised. Only small messages arrive in a CQE,
    /// and most need one segment; the rest is not touched.
    words: [MaybeUninit<[u64; 2]>; Self::MAX],
    len: usize,
}

impl Units {
    /// The most units of a WQE of any kind.
    const MAX: usize = 64;

    /// Returns a list without segments.
    #[inline(always)]
    pub fn new() -> Self {
        Self {
            words: [const { MaybeUninit::uninit() }; Self::MAX],
            len: 0,
        }
    }

    /// Replaces the list by as many of `units` as `length` bytes fill. Writes
    /// in place, since a value of this type takes a kilobyte.
    #[inline]
    pub(crate) fn collect(&mut self, length: u32, units: impl Iterator<Item = [u64; 2]>) {
        self.len = 0;
        let mut room = 0;
        for (place, unit) in self.words.iter_mut().zip(units) {
            place.write(unit);
            self.len += 1;
            room += u64::from(DataSegment::from_words(unit).segment().length);
            if room >= u64::from(length) {
                break;
            }
        }
    }

    fn written(&self) -> &[[u64; 2]] {
        let written = &self.words[..self.len];
        // SAFETY: `collect` writes as many as it counts.
        unsafe { core::slice::from_raw_parts(written.as_ptr().cast(), written.len()) }
    }
}

impl Default for Units {
    fn default() -> Self {
        Self::new()
    }
}

impl core::fmt::Debug for Units {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let segments = self
            .written()
            .iter()
            .map(|unit| DataSegment::from_words(*unit));
        f.debug_list().entries(segments).finish()
    }
}

/// Copies `length` bytes of `payload` into the memory that `units` name. Returns
/// `false` if they do not fit.
///
/// # Safety
/// The memory of every segment is writable for its length, as the application
/// promised when it posted the request, and the completion has not been reported
/// to the application yet, so nothing else uses the memory.
pub unsafe fn scatter(payload: &Payload, length: u32, units: &Units) -> bool {
    let bytes = bytes_of(payload);
    let mut rest = Scatter {
        bytes: &bytes,
        wanted: length as usize,
    };
    if length == 0 {
        return true;
    }
    for unit in units.written() {
        // SAFETY: the segment's memory is writable, as promised when it was posted.
        if unsafe { rest.fill(&DataSegment::from_words(*unit)) } {
            return true;
        }
    }
    false
}

const _: () = assert!(UNIT == 16);
