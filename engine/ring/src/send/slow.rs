//! The slow path: requests with any number of segments, inline data that may
//! wrap around the end of the ring, markers, and atomic operations.

use core::ptr::NonNull;

use super::atomic::Atomic;
use super::encode::{Operation, Payload, Return, Transfer, with_fence};
use super::{Control, SendProducer, Written};
use crate::mmio::read_message;
use crate::request::{PostError, Segment, SendFlags, SendRequest};
use crate::units::{data_words, write_unit};
use crate::wire::{CtrlFlags, InlineHeader, UNIT, WqeOpcode, inline_units};

/// No more segments than a WQE has room for. Segments of length 0 are left out.
struct Segments<'a>(&'a [Segment]);

impl SendProducer {
    /// Writes the WQE of any request. The device sees it with the next doorbell.
    ///
    /// # Errors
    /// [`PostError`]; nothing is posted then.
    ///
    /// # Safety
    /// As for [`Self::post_with_data`].
    #[inline(never)]
    pub(super) unsafe fn write(
        &mut self,
        request: &SendRequest<'_>,
        wr_data: u32,
    ) -> Result<Written, PostError> {
        let fence = self.check_room()?;
        // SAFETY: required of the caller.
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
        let Some((operation, remote)) = Operation::of(request.op) else {
            return match Atomic::of(request.op) {
                Some(atomic) => self.write_atomic(request, atomic, wr_data, fence),
                None => Ok(self.write_marker(request, wr_data, fence)),
            };
        };
        let transfer = Transfer {
            operation,
            remote,
            fence,
            wr_data,
        };
        // SAFETY: required of the caller.
        unsafe { self.encode::<_, Return>(request, transfer, &Segments(request.segments)) }
    }

    /// Writes a signalled NOP, which is a control segment only.
    fn write_marker(
        &mut self,
        request: &SendRequest<'_>,
        wr_data: u32,
        fence: CtrlFlags,
    ) -> Written {
        let asked = request.flags & SendFlags::FENCE | SendFlags::SIGNALED;
        let flags = with_fence(asked, fence);
        self.finish(
            self.place(),
            request.wr_id,
            wr_data,
            Control {
                opcode: WqeOpcode::Nop,
                units: 1,
                flags,
                imm: 0,
            },
        )
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
}

impl Payload for Segments<'_> {
    type Refused = PostError;

    unsafe fn write_data(&self, ring: &SendProducer, body: NonNull<u8>) -> Result<u32, PostError> {
        let mut at = body;
        let mut units = 0;
        let mut length = 0u64;
        for segment in self.0 {
            if segment.length == 0 {
                continue;
            }
            if at == ring.end {
                at = ring.buf;
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

    /// Writes an inline message. The rest of the last unit keeps its old bytes, as
    /// in libmlx5.
    unsafe fn write_inline(
        &self,
        ring: &SendProducer,
        body: NonNull<u8>,
    ) -> Result<u32, PostError> {
        let length = match self.0 {
            [segment] => u64::from(segment.length),
            segments => segments
                .iter()
                .map(|segment| u64::from(segment.length))
                .sum(),
        };
        if length > u64::from(ring.max_inline) {
            return Err(PostError::InlineTooLong);
        }
        let length = length as u32;
        if length == 0 {
            return Ok(0);
        }
        // SAFETY: the header is in the WQE's first WQEBB: `body` is its second
        // or third unit.
        unsafe {
            body.cast::<u32>()
                .write(InlineHeader::new(length).to_bits())
        };
        // SAFETY: still inside that unit.
        let mut at = unsafe { body.add(size_of::<InlineHeader>()) };
        for segment in self.0 {
            let from = core::ptr::with_exposed_provenance::<u8>(segment.addr as usize);
            // SAFETY: the caller promises that the segment is readable; the sum
            // of the lengths was compared with `max_inline` above, so the copy
            // stays within blocks that the credits provide for.
            at = unsafe { ring.copy_in(at, from, segment.length as usize) };
        }
        Ok(inline_units(length))
    }
}
