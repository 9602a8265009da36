//! Any request, whatever it takes: several segments, long inline data that may
//! go on at the start of the ring, markers.

use core::ptr::NonNull;

use super::{Control, Place, SendProducer, Written};
use crate::mmio::read_message;
use crate::request::{PostError, Segment, SendFlags, SendOp, SendRequest};
use crate::ring::units::{data_words, write_unit};
use crate::wire::{CtrlFlags, InlineHeader, RemoteSegment, UNIT, WqeOpcode, inline_units};

/// A WQE that has been begun.
struct Head {
    place: Place,
    opcode: WqeOpcode,
    imm: u32,
    /// Where its segments go.
    body: NonNull<u8>,
    /// Units before that.
    units: u32,
}

impl SendProducer {
    /// Writes one WQE. The device sees it with the next doorbell.
    ///
    /// # Safety
    /// As for [`Self::post_noted`].
    pub(super) unsafe fn write_any(
        &mut self,
        request: &SendRequest<'_>,
        note: u32,
    ) -> Result<Written, PostError> {
        let fence = self.admit()?;
        // SAFETY: passed on to the caller.
        let written = unsafe { self.write_admitted(request, note, fence) };
        if written.is_err() && !fence.is_empty() {
            self.fence_next(fence);
        }
        written
    }

    unsafe fn write_admitted(
        &mut self,
        request: &SendRequest<'_>,
        note: u32,
        fence: CtrlFlags,
    ) -> Result<Written, PostError> {
        if request.segments.len() > self.max_segments as usize {
            return Err(PostError::TooManySegments);
        }
        let Some(head) = self.write_head(request) else {
            return Ok(self.write_marker(request, note, fence));
        };
        let is_read = matches!(request.op, SendOp::Read { .. });
        let units = if request.flags.contains(SendFlags::INLINE) && !is_read {
            // SAFETY: passed on to the caller.
            unsafe { self.write_inline(head.body, request.segments) }?
        } else {
            // SAFETY: `body` is in this WQE, and there are no more segments
            // than a WQE has.
            unsafe { self.write_gather(head.body, request.segments) }?
        };
        let flags = with_fence(request.flags, fence);
        let units = head.units + units;
        Ok(self.finish(
            head.place,
            request.cookie,
            note,
            Control {
                opcode: head.opcode,
                units,
                flags,
                imm: head.imm,
            },
        ))
    }

    /// Begins a WQE at the producer, which the credits say is free: the remote
    /// address, if it has one. `None` for a marker, which has nothing that could
    /// be begun.
    fn write_head(&mut self, request: &SendRequest<'_>) -> Option<Head> {
        let place = self.place();
        let wqe = place.wqe;
        // SAFETY: the second unit of a WQEBB.
        let second = unsafe { wqe.add(UNIT) };
        let (opcode, imm, remote) = match request.op {
            SendOp::Send => (WqeOpcode::Send, 0, None),
            SendOp::SendImm(imm) => (WqeOpcode::SendImm, imm, None),
            SendOp::Write { remote_addr, rkey } => (
                WqeOpcode::RdmaWrite,
                0,
                Some(RemoteSegment::new(remote_addr, rkey)),
            ),
            SendOp::WriteImm {
                remote_addr,
                rkey,
                imm,
            } => (
                WqeOpcode::RdmaWriteImm,
                imm,
                Some(RemoteSegment::new(remote_addr, rkey)),
            ),
            SendOp::Read { remote_addr, rkey } => (
                WqeOpcode::RdmaRead,
                0,
                Some(RemoteSegment::new(remote_addr, rkey)),
            ),
            SendOp::Nop => return None,
        };
        let Some(remote) = remote else {
            return Some(Head {
                place,
                opcode,
                imm,
                body: second,
                units: 1,
            });
        };
        // SAFETY: inside the first WQEBB of this WQE.
        unsafe { write_unit(second, remote.to_words()) };
        // SAFETY: the third unit of a WQEBB.
        let third = unsafe { wqe.add(2 * UNIT) };
        Some(Head {
            place,
            opcode,
            imm,
            body: third,
            units: 2,
        })
    }

    /// Writes a NOP, signalled: a control segment and nothing else.
    fn write_marker(&mut self, request: &SendRequest<'_>, note: u32, fence: CtrlFlags) -> Written {
        let asked = request.flags & SendFlags::FENCE | SendFlags::SIGNALED;
        let flags = with_fence(asked, fence);
        self.finish(
            self.place(),
            request.cookie,
            note,
            Control {
                opcode: WqeOpcode::Nop,
                units: 1,
                flags,
                imm: 0,
            },
        )
    }

    /// Data segments, those of length 0 left out. Answers their number.
    unsafe fn write_gather(
        &mut self,
        body: NonNull<u8>,
        segments: &[Segment],
    ) -> Result<u32, PostError> {
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

    /// The bytes themselves after their header. Answers the units they take.
    /// What is left of the last unit keeps its old bytes, as in libmlx5.
    ///
    /// # Safety
    /// The memory of the segments is readable.
    unsafe fn write_inline(
        &mut self,
        body: NonNull<u8>,
        segments: &[Segment],
    ) -> Result<u32, PostError> {
        let length = match segments {
            [segment] => u64::from(segment.length),
            _ => segments
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
        // SAFETY: the header is in the WQE's first WQEBB: `body` is its second
        // or third unit.
        unsafe {
            body.cast::<u32>()
                .write(InlineHeader::new(length).to_bits())
        };
        // SAFETY: still inside that unit.
        let mut at = unsafe { body.add(size_of::<InlineHeader>()) };
        for segment in segments {
            let from = core::ptr::with_exposed_provenance::<u8>(segment.addr as usize);
            // SAFETY: the caller promises that the segment is readable; the sum
            // of the lengths was compared with `max_inline` above, so the copy
            // stays within blocks that the credits provide for.
            at = unsafe { self.copy_in(at, from, segment.length as usize) };
        }
        Ok(inline_units(length))
    }

    /// Copies into the ring, going on at its start when it ends.
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

/// The flags of a request that is to carry a fence besides its own.
pub(super) fn with_fence(asked: SendFlags, fence: CtrlFlags) -> CtrlFlags {
    let flags = CtrlFlags::from_bits_truncate(asked.bits());
    if flags.contains(CtrlFlags::FENCE) {
        // The larger one includes it.
        flags
    } else {
        flags | fence
    }
}
