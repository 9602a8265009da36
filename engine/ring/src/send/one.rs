//! The fast path: one segment, and room in the queue. It makes no outlined
//! call, and keeps few values alive, so that they stay in registers.

use core::ptr::NonNull;

use super::SendProducer;
use super::encode::{Operation, Payload, Then, Transfer};
use crate::mmio::{SHORT_COPY, read_short};
use crate::request::{Segment, SendRequest};
use crate::units::{data_words, is_plain, write_unit};
use crate::wire::{CtrlFlags, InlineHeader, inline_units};

/// Returns the largest inline message that this module writes.
pub(super) fn short_inline(max_inline: u32) -> u32 {
    max_inline.min(SHORT_COPY)
}

/// The request needs the slow path.
struct NeedsSlowPath;

/// One segment, not empty, that does not wrap around the end of the ring.
struct SingleSegment<'a>(&'a Segment);

impl SendProducer {
    /// Writes the WQE of a request with one segment, as most requests have, and
    /// passes it to `T`. Returns `None`, with nothing posted, for a request that needs the slow
    /// path.
    ///
    /// # Safety
    /// As for [`Self::post_with_data`].
    #[inline(always)]
    pub(super) unsafe fn try_write<T: Then>(
        &mut self,
        request: &SendRequest<'_>,
        wr_data: u32,
    ) -> Option<T::Result> {
        let [segment] = request.segments else {
            return None;
        };
        let (operation, remote) = Operation::of(request.op)?;
        let transfer = |remote| Transfer {
            operation,
            remote,
            fence: CtrlFlags::empty(),
            wr_data,
        };
        let one = SingleSegment(segment);
        // Compiled separately with and without the peer's memory.
        // SAFETY: required of the caller.
        unsafe {
            match remote {
                None => self.try_encode::<T>(request, transfer(None), one),
                Some(_) => self.try_encode::<T>(request, transfer(remote), one),
            }
        }
    }

    /// # Safety
    /// As for [`Self::post_with_data`].
    #[inline(always)]
    unsafe fn try_encode<T: Then>(
        &mut self,
        request: &SendRequest<'_>,
        transfer: Transfer,
        one: SingleSegment<'_>,
    ) -> Option<T::Result> {
        if !self.has_room() {
            return None;
        }
        // SAFETY: required of the caller; there is room.
        unsafe { self.encode::<_, T>(request, transfer, &one) }.ok()
    }
}

impl Payload for SingleSegment<'_> {
    type Refused = NeedsSlowPath;

    #[inline(always)]
    unsafe fn write_data(&self, _: &SendProducer, body: NonNull<u8>) -> Result<u32, NeedsSlowPath> {
        // SAFETY: required of the caller.
        unsafe { write_data(self.0, body) }.ok_or(NeedsSlowPath)
    }

    #[inline(always)]
    unsafe fn write_inline(
        &self,
        ring: &SendProducer,
        body: NonNull<u8>,
    ) -> Result<u32, NeedsSlowPath> {
        // SAFETY: required of the caller.
        unsafe { InlineLimits::of(ring).write(self.0, body) }.ok_or(NeedsSlowPath)
    }
}

/// Writes a data segment. Returns how many units it takes; `None` if the segment is empty
/// or too long.
///
/// # Safety
/// As for [`Payload::write_data`].
#[inline(always)]
pub(super) unsafe fn write_data(segment: &Segment, body: NonNull<u8>) -> Option<u32> {
    if !is_plain(segment.length) {
        return None;
    }
    // SAFETY: in the WQE's first WQEBB.
    unsafe { write_unit(body, data_words(segment)) };
    Some(1)
}

/// What limits inline messages on the fast path.
#[derive(Clone, Copy)]
pub(super) struct InlineLimits {
    /// The most bytes.
    longest: u32,
    /// The end of the ring.
    end: NonNull<u8>,
}

impl InlineLimits {
    #[inline(always)]
    pub(super) fn of(ring: &SendProducer) -> Self {
        Self {
            longest: ring.short_inline,
            end: ring.end,
        }
    }

    /// Returns whether a message has at least one byte and at most the limit.
    #[inline(always)]
    pub(super) fn allow(self, length: u32) -> bool {
        // The subtraction wraps for 0 bytes.
        length.wrapping_sub(1) < self.longest
    }

    /// Writes an inline message.
    ///
    /// # Safety
    /// As for [`Payload::write_inline`], in the ring of the limits; and they allow its length
    /// ([`Self::allow`]), and it does not wrap around the end of the ring.
    #[inline(always)]
    pub(super) unsafe fn copy(self, segment: &Segment, body: NonNull<u8>) {
        let length = segment.length;
        // SAFETY: the header is in the WQE's first WQEBB.
        unsafe {
            body.cast::<u32>()
                .write(InlineHeader::new(length).to_bits())
        };
        let data = body.as_ptr().wrapping_add(size_of::<InlineHeader>());
        let from = core::ptr::with_exposed_provenance::<u8>(segment.addr as usize);
        // SAFETY: the caller promises that the segment is readable, and that the bytes are in
        // WQEBBs that the credits provide for.
        unsafe { read_short(data, from, length as usize) };
    }

    /// Writes an inline message. Returns how many units it takes; `None` if it is empty or
    /// exceeds the limits.
    ///
    /// # Safety
    /// As for [`Payload::write_inline`], in the ring of the limits.
    #[inline(always)]
    pub(super) unsafe fn write(self, segment: &Segment, body: NonNull<u8>) -> Option<u32> {
        let length = segment.length;
        if !self.allow(length) {
            return None;
        }
        let data = body.as_ptr().wrapping_add(size_of::<InlineHeader>());
        if data.addr() + length as usize > self.end.as_ptr().addr() {
            return None;
        }
        // SAFETY: its length is allowed, and the bytes fit the ring up to its end; the rest is
        // required of the caller.
        unsafe { self.copy(segment, body) };
        let units = inline_units(length);
        // SAFETY: the header and at least one byte. So the doorbell need not
        // check whether the WQE is more than a control segment.
        unsafe { core::hint::assert_unchecked(units > 0) };
        Some(units)
    }
}
