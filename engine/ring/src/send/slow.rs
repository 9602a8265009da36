//! The slow path: requests with any number of segments, inline data that may
//! wrap around the end of the ring, markers, and atomic operations.

use core::ptr::NonNull;

use super::encode::{Head, with_fence};
use super::{SendProducer, Written};
use crate::mmio::read_message;
use crate::request::{PostError, Segment, SendFlags, SendOp, SendRequest};
use crate::units::{data_words, write_unit};
use crate::wire::{CtrlFlags, InlineHeader, UNIT, inline_units};

impl SendProducer {
    /// Writes the WQE of any request. The device sees it with the next doorbell.
    ///
    /// # Errors
    /// [`PostError`]; nothing is posted then.
    ///
    /// # Safety
    /// As for [`Self::post`].
    #[inline(never)]
    pub(super) unsafe fn write(
        &mut self,
        request: &SendRequest<'_>,
        wr_data: u32,
    ) -> Result<Written, PostError> {
        let fence = self.check_room()?;
        // SAFETY: the segments' memory stays until the requests complete.
        let written = unsafe { self.write_checked(request, wr_data, fence) };
        if written.is_err() && !fence.is_empty() {
            self.fence_next(fence);
        }
        written
    }

    #[inline(always)]
    unsafe fn write_checked(
        &mut self,
        request: &SendRequest<'_>,
        wr_data: u32,
        fence: CtrlFlags,
    ) -> Result<Written, PostError> {
        if request.segments.len() > self.max_segments as usize {
            return Err(PostError::TooManySegments);
        }
        let head = Head::of(request.op);
        let ids = (request.wr_id, wr_data);
        let place = self.place();
        if request.op == SendOp::Nop {
            // A marker is a control segment only, and always signalled.
            let flags = with_fence(
                request.flags & SendFlags::FENCE | SendFlags::SIGNALED,
                fence,
            );
            return Ok(self.finish(place, ids, head, 0, flags));
        }
        request.check_atomic(self.atomics)?;
        // SAFETY: a unit of the WQE's first WQEBB.
        let body = unsafe { place.wqe.add(head.units() as usize * UNIT) };
        let units = if request.is_inline() {
            // SAFETY: the segments' memory stays until the requests complete; there is room.
            unsafe { self.write_inline(request.segments, body) }
        } else {
            // SAFETY: as above.
            unsafe { self.write_data(request.segments, body) }
        }?;
        Ok(self.finish(place, ids, head, units, with_fence(request.flags, fence)))
    }

    /// Copies into the ring, wrapping around at its end.
    ///
    /// # Safety
    /// `length` readable bytes at `from`; `at` is in the ring, and as many
    /// bytes from there on, wrapped, are free.
    unsafe fn copy_in(
        &self,
        mut at: NonNull<u8>,
        mut from: *const u8,
        mut length: usize,
    ) -> NonNull<u8> {
        let room = self.end.as_ptr().addr() - at.as_ptr().addr();
        if length > room {
            // SAFETY: `room` bytes are left in the ring, and the source has more.
            unsafe { read_message(from, at.as_ptr(), room) };
            // SAFETY: within the source.
            from = unsafe { from.add(room) };
            length -= room;
            at = self.buf;
        }
        // SAFETY: `length` bytes fit between `at` and the end of the ring.
        unsafe { read_message(from, at.as_ptr(), length) };
        // SAFETY: stays within, or one past, the ring.
        unsafe { at.add(length) }
    }

    /// Writes data segments, except empty ones. Returns how many units they take.
    ///
    /// # Safety
    /// `body` is the unit after the head of the WQE at the producer, which the credits say is
    /// free; there are no more segments than `max_segments`.
    unsafe fn write_data(&self, segments: &[Segment], body: NonNull<u8>) -> Result<u32, PostError> {
        let mut at = body;
        let mut units = 0;
        let mut length = 0u64;
        for segment in segments {
            if segment.length == 0 {
                continue;
            }
            if at == self.end {
                at = self.buf;
            }
            length += u64::from(segment.length);
            // SAFETY: with at most `max_segments` units the WQE is no longer
            // than the longest that the credits provide for, so `at`, wrapped
            // above, is in a WQEBB that the device has given back.
            unsafe { write_unit(at, data_words(segment)) };
            // SAFETY: stays within, or one past, the ring.
            at = unsafe { at.add(UNIT) };
            units += 1;
        }
        if length >= u64::from(InlineHeader::MARK) {
            return Err(PostError::MessageTooLong);
        }
        Ok(units)
    }

    /// Writes an inline message behind its header. The rest of the last unit keeps its old
    /// bytes, as in libmlx5. Returns how many units it takes.
    ///
    /// # Safety
    /// As for [`Self::write_data`]; and the memory of the segments is readable.
    unsafe fn write_inline(
        &self,
        segments: &[Segment],
        body: NonNull<u8>,
    ) -> Result<u32, PostError> {
        let length = match segments {
            [segment] => u64::from(segment.length),
            segments => segments
                .iter()
                .map(|segment| u64::from(segment.length))
                .sum(),
        };
        if length > u64::from(self.max_inline) {
            return Err(PostError::InlineTooLong);
        }
        let length = length as u32;
        if length == 0 {
            return Ok(0);
        }
        // SAFETY: the header is in the WQE's first WQEBB.
        unsafe { body.cast::<u32>().write(InlineHeader::bits(length)) };
        // SAFETY: still inside that unit.
        let mut at = unsafe { body.add(InlineHeader::BYTES) };
        for segment in segments {
            let from = core::ptr::with_exposed_provenance::<u8>(segment.addr as usize);
            // SAFETY: the caller promises that the segment is readable; the sum
            // of the lengths was compared with `max_inline` above, so the copy
            // stays within blocks that the credits provide for.
            at = unsafe { self.copy_in(at, from, segment.length as usize) };
        }
        Ok(inline_units(length))
    }
}
