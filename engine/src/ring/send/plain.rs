//! The usual request, written in line: one segment, room in the queue.
//!
//! What is constant of a request where it is posted stays constant here: so
//! each operation has its own way, and nothing is kept for later that the next
//! line can work out. Nothing is called out of line.

use core::ptr::NonNull;

use super::{Control, SendProducer, Written};
use crate::mmio::{SHORT_COPY, read_short};
use crate::request::{Segment, SendFlags, SendOp, SendRequest};
use crate::ring::units::{data_words, is_plain, write_unit};
use crate::wire::{CtrlFlags, InlineHeader, RemoteSegment, UNIT, WqeOpcode, inline_units};

/// The most inline bytes that are written here.
pub(super) fn short_inline(max_inline: u32) -> u32 {
    max_inline.min(SHORT_COPY)
}

impl SendProducer {
    /// Writes the WQE of a request with one segment: most requests. `None`, with
    /// nothing posted, if it is another one or takes a closer look.
    ///
    /// # Safety
    /// As for [`Self::post_noted`].
    #[inline(always)]
    pub(super) unsafe fn write_plain(
        &mut self,
        request: &SendRequest<'_>,
        note: u32,
    ) -> Option<Written> {
        let [segment] = request.segments else {
            return None;
        };
        let (opcode, imm, remote) = match request.op {
            SendOp::Send => (WqeOpcode::Send, 0, None),
            SendOp::SendImm(imm) => (WqeOpcode::SendImm, imm, None),
            SendOp::Write { remote_addr, rkey } => {
                (WqeOpcode::RdmaWrite, 0, Some((remote_addr, rkey)))
            }
            SendOp::WriteImm {
                remote_addr,
                rkey,
                imm,
            } => (WqeOpcode::RdmaWriteImm, imm, Some((remote_addr, rkey))),
            SendOp::Read { remote_addr, rkey } => {
                (WqeOpcode::RdmaRead, 0, Some((remote_addr, rkey)))
            }
            SendOp::Nop => return None,
        };
        // SAFETY: passed on to the caller.
        unsafe {
            match remote {
                None => self.write_one(request, segment, note, opcode, imm, None),
                Some((addr, rkey)) => {
                    let remote = Some(RemoteSegment::new(addr, rkey));
                    self.write_one(request, segment, note, opcode, imm, remote)
                }
            }
        }
    }

    /// # Safety
    /// As for [`Self::write_plain`].
    #[inline(always)]
    unsafe fn write_one(
        &mut self,
        request: &SendRequest<'_>,
        segment: &Segment,
        note: u32,
        opcode: WqeOpcode,
        imm: u32,
        remote: Option<RemoteSegment>,
    ) -> Option<Written> {
        let length = segment.length;
        // A read has nothing to copy.
        let is_inline =
            request.flags.contains(SendFlags::INLINE) && !matches!(opcode, WqeOpcode::RdmaRead);
        if !self.has_room() {
            return None;
        }
        let place = self.place();
        let before = if remote.is_some() { 2 } else { 1 };
        // SAFETY: the second or third unit of the WQE's first WQEBB.
        let body = unsafe { place.wqe.add(before * UNIT) };
        let units = if is_inline {
            // No bytes at all are more than any number of them here.
            if length.wrapping_sub(1) >= self.short_inline {
                return None;
            }
            // SAFETY: the WQE is free, and the segment readable: the caller.
            unsafe { self.write_inline_plain(body, segment) }?
        } else {
            if !is_plain(length) {
                return None;
            }
            // SAFETY: in the WQE's first WQEBB.
            unsafe { write_unit(body, data_words(segment)) };
            1
        };
        if let Some(remote) = remote {
            // SAFETY: the second unit of the WQE's first WQEBB.
            unsafe { write_unit(place.wqe.add(UNIT), remote.to_words()) };
        }
        let units = before as u32 + units;
        // SAFETY: the control segment, and at least one unit behind it. So the
        // doorbell need not ask whether there is more than the control segment.
        unsafe { core::hint::assert_unchecked(units > 1) };
        let control = Control {
            opcode,
            units,
            flags: CtrlFlags::from_bits_truncate(request.flags.bits()),
            imm,
        };
        Some(self.finish(place, request.cookie, note, control))
    }

    /// Writes inline data up to the end of the ring, answers how many units
    /// they take; `None`, with nothing written, if the ring ends before them.
    ///
    /// # Safety
    /// `body` is the second or third unit of the WQE at the producer, which is
    /// free; the segment is readable and no longer than `short_inline`.
    #[inline(always)]
    unsafe fn write_inline_plain(&self, body: NonNull<u8>, segment: &Segment) -> Option<u32> {
        let length = segment.length;
        let data = body.as_ptr().wrapping_add(size_of::<InlineHeader>());
        if data.addr() + length as usize > self.end.as_ptr().addr() {
            return None;
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
        Some(inline_units(length))
    }
}
