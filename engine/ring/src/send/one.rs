//! The fast path: one segment, and room in the queue. It makes no outlined
//! call, and keeps few values alive, so that they stay in registers.

use core::ptr::NonNull;

use super::SendProducer;
use super::encode::Head;
use crate::mmio::{SHORT_COPY, read_short};
use crate::request::{Segment, SendOp, SendRequest};
use crate::units::{data_words, is_plain, write_unit};
use crate::wire::{CtrlFlags, InlineHeader, UNIT, inline_units};

/// Returns the largest inline message that this module writes.
pub(super) fn short_inline(max_inline: u32) -> u32 {
    max_inline.min(SHORT_COPY)
}

impl SendProducer {
    /// Posts a request with one segment, as most requests have, and rings the doorbell.
    /// Returns `false`, with nothing posted, for a request that needs the slow path.
    ///
    /// # Safety
    /// As for [`Self::post`].
    #[inline(always)]
    pub unsafe fn try_post(&mut self, request: &SendRequest<'_>, wr_data: u32) -> bool {
        let [segment] = request.segments else {
            return false;
        };
        if matches!(request.op, SendOp::Nop)
            || request.check_atomic(self.atomics).is_err()
            || self.credits.exhausted() && !self.finds_room()
        {
            return false;
        }
        let head = Head::of(request.op);
        let ids = (request.wr_id, wr_data);
        let flags = CtrlFlags::from_bits_truncate(request.flags.bits());
        let place = self.place();
        // SAFETY: a unit of the WQE's first WQEBB.
        let body = unsafe { place.wqe.add(head.units() as usize * UNIT) };
        // Everything after the data is compiled separately: without inline data the length
        // of the WQE is known.
        if request.is_inline() {
            // SAFETY: the segments' memory stays until the requests complete; there is room.
            let Some(units) = (unsafe { InlineLimits::of(self).write(segment, body) }) else {
                return false;
            };
            let written = self.finish(place, ids, head, units, flags);
            self.ring(1, written);
        } else {
            // SAFETY: as above.
            let Some(units) = (unsafe { write_data(segment, body) }) else {
                return false;
            };
            let written = self.finish(place, ids, head, units, flags);
            self.ring(1, written);
        }
        true
    }
}

/// Writes a data segment. Returns how many units it takes; `None` if the segment is empty
/// or too long.
///
/// # Safety
/// `body` is the unit after the head of the WQE at the producer, which the credits say is free.
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
    /// As for [`write_data`], in the ring of the limits; and the segment is readable. They allow
    /// its length ([`Self::allow`]), and it does not wrap around the end of the ring.
    #[inline(always)]
    pub(super) unsafe fn copy(self, segment: &Segment, body: NonNull<u8>) {
        let length = segment.length;
        // SAFETY: the header is in the WQE's first WQEBB.
        unsafe { body.cast::<u32>().write(InlineHeader::bits(length)) };
        let data = body.as_ptr().wrapping_add(InlineHeader::BYTES);
        let from = core::ptr::with_exposed_provenance::<u8>(segment.addr as usize);
        // SAFETY: the caller promises that the segment is readable, and that the bytes are in
        // WQEBBs that the credits provide for.
        unsafe { read_short(data, from, length as usize) };
    }

    /// Writes an inline message. Returns how many units it takes; `None` if it is empty or
    /// exceeds the limits.
    ///
    /// # Safety
    /// As for [`write_data`], in the ring of the limits; and the segment is readable.
    #[inline(always)]
    pub(super) unsafe fn write(self, segment: &Segment, body: NonNull<u8>) -> Option<u32> {
        let length = segment.length;
        // As in `allow`.
        if length.wrapping_sub(1) >= self.longest {
            return None;
        }
        let data = body.as_ptr().wrapping_add(InlineHeader::BYTES);
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
