//! The fast path: one segment, room in the queue. Nothing is called out of line,
//! and nothing is kept for later that the next line can work out.

use core::ptr::NonNull;

use super::encode::{Operation, Payload, Remote};
use super::{SendProducer, Written};
use crate::mmio::{SHORT_COPY, read_short};
use crate::request::{Segment, SendRequest};
use crate::units::{data_words, is_plain, write_unit};
use crate::wire::{CtrlFlags, InlineHeader, inline_units};

/// Returns the most inline bytes that this module writes.
pub(super) fn short_inline(max_inline: u32) -> u32 {
    max_inline.min(SHORT_COPY)
}

/// A request that the fast path does not write.
struct NeedsSlowPath;

/// One segment, with bytes, which the ring need not go on at its start for.
struct SingleSegment<'a>(&'a Segment);

impl SendProducer {
    /// Writes the WQE of a request with one segment: most requests. `None`, with
    /// nothing posted, if it is another one or takes a closer look.
    ///
    /// # Safety
    /// As for [`Self::post_with_data`].
    #[inline(always)]
    pub(super) unsafe fn try_write(
        &mut self,
        request: &SendRequest<'_>,
        wr_data: u32,
    ) -> Option<Written> {
        let [segment] = request.segments else {
            return None;
        };
        let (operation, remote) = Operation::of(request.op)?;
        // Compiled by itself with and without the peer's memory.
        // SAFETY: required of the caller.
        unsafe {
            match remote {
                None => self.try_encode(request, operation, None, SingleSegment(segment), wr_data),
                Some(_) => {
                    self.try_encode(request, operation, remote, SingleSegment(segment), wr_data)
                }
            }
        }
    }

    /// # Safety
    /// As for [`Self::post_with_data`].
    #[inline(always)]
    unsafe fn try_encode(
        &mut self,
        request: &SendRequest<'_>,
        operation: Operation,
        remote: Option<Remote>,
        one: SingleSegment<'_>,
        wr_data: u32,
    ) -> Option<Written> {
        if !self.has_room() {
            return None;
        }
        let fence = CtrlFlags::empty();
        // SAFETY: required of the caller; there is room.
        unsafe { self.encode(request, operation, remote, &one, wr_data, fence) }.ok()
    }
}

impl Payload for SingleSegment<'_> {
    type Refused = NeedsSlowPath;

    #[inline(always)]
    unsafe fn write_data(&self, _: &SendProducer, body: NonNull<u8>) -> Result<u32, NeedsSlowPath> {
        let Self(segment) = self;
        if !is_plain(segment.length) {
            return Err(NeedsSlowPath);
        }
        // SAFETY: in the WQE's first WQEBB.
        unsafe { write_unit(body, data_words(segment)) };
        Ok(1)
    }

    #[inline(always)]
    unsafe fn write_inline(
        &self,
        ring: &SendProducer,
        body: NonNull<u8>,
    ) -> Result<u32, NeedsSlowPath> {
        let Self(segment) = self;
        let length = segment.length;
        // No bytes at all are more than any number of them here.
        if length.wrapping_sub(1) >= ring.short_inline {
            return Err(NeedsSlowPath);
        }
        let data = body.as_ptr().wrapping_add(size_of::<InlineHeader>());
        if data.addr() + length as usize > ring.end.as_ptr().addr() {
            return Err(NeedsSlowPath);
        }
        // SAFETY: the header is in the WQE's first WQEBB.
        unsafe {
            body.cast::<u32>()
                .write(InlineHeader::new(length).to_bits())
        };
        let from = core::ptr::with_exposed_provenance::<u8>(segment.addr as usize);
        // SAFETY: the caller promises that the segment is readable; the bytes
        // fit the ring up to its end, and WQEBBs that the credits provide for.
        unsafe { read_short(data, from, length as usize) };
        let units = inline_units(length);
        // SAFETY: the header and at least one byte. So the doorbell need not ask
        // whether there is more than the control segment.
        unsafe { core::hint::assert_unchecked(units > 0) };
        Ok(units)
    }
}
