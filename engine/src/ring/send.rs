//! The send queue: WQEs of one or more 64-byte blocks (WQEBB), gap free.
//!
//! A WQE starts where the last one ended and may go on at the start of the
//! ring. What must never happen is that one is overwritten before it is done.
//! Two limits see to that, and one implies the other: no more than `capacity`
//! requests are outstanding, and `capacity` of the longest WQEs fit the ring
//! (`SendConsumer::new` sees to it), so blocks need not be counted per post.
//!
//! Requests that are not signalled are retired by the next completion: its WQE
//! counter leads to a table entry that says how many requests were posted up to
//! and including that one.

use core::ptr::NonNull;
use core::sync::atomic::Ordering;

use super::layout::SendLayout;
use super::receive::{data_words, is_plain, write_unit};
use super::{Credits, RingSize};
use crate::mmio::{BlueFlame, DoorbellRecord, Register, barrier};
use crate::request::{ListError, PostError, Segment, SendFlags, SendOp, SendRequest};
use crate::wire::{
    CtrlFlags, CtrlSegment, InlineHeader, RemoteSegment, UNIT, WQEBB, WqeOpcode, inline_units,
};

use consumer::Entry;
pub use consumer::{Retired, SendConsumer};
use copy::{SHORT_COPY, copy_short};

mod bind;
mod consumer;
mod copy;

/// How a send queue may ring its register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DoorbellPolicy {
    /// Whether a single request may be copied to the register. Only effective
    /// on a register that is exclusively this queue's.
    pub blue_flame: bool,
    /// Whether other threads may ring the same register at the same time.
    pub serialised: bool,
}

/// The posting half.
#[derive(Debug)]
pub struct SendProducer {
    buf: NonNull<u8>,
    end: NonNull<u8>,
    size: RingSize,
    /// WQEBBs written so far; 16 bits of it are the device's counter.
    producer: u32,
    credits: Credits,
    /// As control segments have it.
    qpn_shifted: u32,
    max_segments: u32,
    max_inline: u32,
    /// The longest WQE, in units, that may be copied to the register; 0: none.
    blue_flame_units: u32,
    record: DoorbellRecord,
    /// The consumer's entries, by WQEBB: kept here so that a post does not
    /// touch the cache line that the poller writes.
    entries: NonNull<Entry>,
    consumer: NonNull<SendConsumer>,
    register: Register,
    /// Whether there is room for binds.
    windows: bool,
    /// The next WQE carries these. Whoever sets them holds the credits, so that
    /// only the way of an exhausted queue need look here.
    next_fence: CtrlFlags,
}

// SAFETY: `buf` and `end` are DMA memory, bound to no thread; only this half
// writes it. The consumer is `Sync` and outlives this half, as promised to
// `new`.
unsafe impl Send for SendProducer {}

/// A WQE that has been begun.
struct Head {
    index: usize,
    wqe: NonNull<u8>,
    opcode: WqeOpcode,
    imm: u32,
    /// Where its segments go.
    body: NonNull<u8>,
    /// Units before that.
    units: u32,
}

/// A WQE in the ring that the device has not been told of.
#[derive(Clone, Copy)]
struct Written {
    ctrl: CtrlSegment,
    index: usize,
    units: u32,
}

impl SendProducer {
    /// The posting half of the ring whose other half is `consumer`. Closed for
    /// posts until [`Self::open`].
    ///
    /// # Safety
    /// `layout` is the one that `consumer` was made from, and `consumer` stays
    /// where it is for as long as this half lives. There is no other producer.
    /// The register that the layout names is valid as long, and used as
    /// `policy` says.
    pub unsafe fn new(
        layout: &SendLayout,
        policy: DoorbellPolicy,
        consumer: &SendConsumer,
    ) -> Self {
        let SendConsumer { size, capacity, .. } = *consumer;
        let register = layout.register;
        let copies = policy.blue_flame && register.exclusive;
        Self {
            buf: layout.buf,
            // SAFETY: one past the ring, as the layout says.
            end: unsafe { layout.buf.add(size.count() as usize * WQEBB) },
            size,
            producer: 0,
            credits: Credits::new(capacity, consumer.retired.load(Ordering::Acquire)),
            qpn_shifted: layout.qpn << 8,
            max_segments: layout.max_segments.max(1),
            max_inline: layout.max_inline,
            blue_flame_units: if copies {
                register.half_size / UNIT as u32
            } else {
                0
            },
            // SAFETY: the layout's record, valid as promised to the consumer.
            record: unsafe { DoorbellRecord::new(layout.dbrec) },
            entries: NonNull::from(&*consumer.entries).cast(),
            consumer: NonNull::from(consumer),
            // SAFETY: the layout's register, valid as the caller promises.
            register: unsafe { Register::at(register.reg, register.half_size, policy.serialised) },
            windows: layout.windows,
            next_fence: CtrlFlags::empty(),
        }
    }

    fn retired(&self) -> u32 {
        // SAFETY: the consumer outlives this half, as promised to `new`.
        let consumer = unsafe { self.consumer.as_ref() };
        // Acquire: the poller has read the entries and WQEs that come back.
        consumer.retired.load(Ordering::Acquire)
    }

    /// Lets posts in: the queue pair is ready to send.
    pub fn open(&mut self) {
        self.credits.open(self.retired());
        if !self.next_fence.is_empty() {
            self.credits.hold();
        }
    }

    /// Lets no more posts in.
    pub fn close(&mut self) {
        self.credits.close();
    }

    /// Whether every request that was posted has been retired.
    pub fn is_idle(&self) -> bool {
        self.credits.posted() == self.retired()
    }

    /// The most requests that may be outstanding.
    pub fn capacity(&self) -> u32 {
        self.credits.capacity()
    }

    /// Takes no more than `most` at a time from now on, where the ring would
    /// hold more. No more than that must be outstanding.
    pub fn limit(&mut self, most: u32) {
        // SAFETY: the consumer outlives this half, as promised to `new`.
        let capacity = unsafe { self.consumer.as_ref() }.capacity.min(most);
        self.credits.set_capacity(capacity);
    }

    /// Posts one request and rings. Its note is 0.
    ///
    /// # Errors
    /// [`PostError`]; nothing is posted then.
    ///
    /// # Safety
    /// As for [`Self::post_noted`].
    #[inline(always)]
    pub unsafe fn post(&mut self, request: &SendRequest<'_>) -> Result<(), PostError> {
        // SAFETY: passed on to the caller.
        unsafe { self.post_noted(request, 0) }
    }

    /// Posts one request and rings. Its completion carries `note`.
    ///
    /// # Errors
    /// [`PostError`]; nothing is posted then.
    ///
    /// # Safety
    /// The memory of the segments is readable by the processor now if the
    /// request is inline; otherwise it is left alone (for a read: writable and
    /// unused) until the request completes.
    #[inline(always)]
    pub unsafe fn post_noted(
        &mut self,
        request: &SendRequest<'_>,
        note: u32,
    ) -> Result<(), PostError> {
        // SAFETY: passed on to the caller.
        match unsafe { self.write_plain(request, note) } {
            Some(written) => {
                self.ring_single(written);
                Ok(())
            }
            // SAFETY: passed on to the caller.
            None => unsafe { self.post_any(request, note) },
        }
    }

    /// [`Self::post_noted`] for every request.
    #[inline(never)]
    unsafe fn post_any(&mut self, request: &SendRequest<'_>, note: u32) -> Result<(), PostError> {
        // SAFETY: passed on to the caller.
        let written = unsafe { self.write(request, note) }?;
        self.ring_single(written);
        Ok(())
    }

    /// [`Self::post_noted`] as far as it goes without a call out of line: whether
    /// it is posted.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    pub unsafe fn post_plain(&mut self, request: &SendRequest<'_>, note: u32) -> bool {
        // SAFETY: passed on to the caller.
        match unsafe { self.write_plain(request, note) } {
            Some(written) => {
                self.ring_single(written);
                true
            }
            None => false,
        }
    }

    /// Posts several requests and rings once. Their notes are 0.
    ///
    /// # Errors
    /// [`ListError`]; the requests before the bad one are posted.
    ///
    /// # Safety
    /// As for [`Self::post`], for every request.
    #[inline]
    pub unsafe fn post_list(&mut self, requests: &[SendRequest<'_>]) -> Result<(), ListError> {
        let mut last = None;
        let mut result = Ok(());
        for (posted, request) in requests.iter().enumerate() {
            // SAFETY: passed on to the caller.
            let written = match unsafe { self.write_plain(request, 0) } {
                Some(written) => Ok(written),
                // SAFETY: passed on to the caller.
                None => unsafe { self.write_out_of_line(request) },
            };
            match written {
                Ok(written) => last = Some((posted, written)),
                Err(error) => {
                    result = Err(ListError { posted, error });
                    break;
                }
            }
        }
        match last {
            Some((0, written)) => self.ring_single(written),
            Some((_, written)) => self.ring(written),
            None => {}
        }
        result
    }

    /// Writes the WQE of a request with one segment: most requests. `None`, with
    /// nothing done, if it is another one or takes a closer look. Calls nothing
    /// out of line.
    ///
    /// # Safety
    /// As for [`Self::post`].
    #[inline(always)]
    unsafe fn write_plain(&mut self, request: &SendRequest<'_>, note: u32) -> Option<Written> {
        let [segment] = request.segments else {
            return None;
        };
        if !is_plain(segment.length) || self.credits.exhausted() {
            return None;
        }
        if !request.flags.contains(SendFlags::INLINE) {
            let head = self.write_head(request)?;
            // SAFETY: the second or third unit of the WQE's first WQEBB.
            unsafe { write_unit(head.body, data_words(segment)) };
            return Some(self.write_ctrl(request, note, &head, 1, CtrlFlags::empty()));
        }
        let length = segment.length;
        let is_read = matches!(request.op, SendOp::Read { .. });
        if length > self.max_inline.min(SHORT_COPY) || is_read {
            return None;
        }
        let head = self.write_head(request)?;
        // SAFETY: inside the WQE's first WQEBB.
        let data = unsafe { head.body.add(size_of::<InlineHeader>()) };
        if self.end.as_ptr().addr() - data.as_ptr().addr() < length as usize {
            return None;
        }
        // SAFETY: the header is in the WQE's first WQEBB.
        unsafe {
            head.body
                .cast::<u32>()
                .write(InlineHeader::new(length).to_bits())
        };
        let from = core::ptr::with_exposed_provenance::<u8>(segment.addr as usize);
        // SAFETY: the caller promises that the segment is readable; the bytes
        // fit the ring up to its end, and WQEBBs that the credits provide for.
        unsafe { copy_short(data.as_ptr(), from, length as usize) };
        let units = inline_units(length);
        Some(self.write_ctrl(request, note, &head, units, CtrlFlags::empty()))
    }

    /// Writes one WQE. The device sees it with the next doorbell.
    #[inline(always)]
    unsafe fn write(&mut self, request: &SendRequest<'_>, note: u32) -> Result<Written, PostError> {
        if self.credits.exhausted() {
            // SAFETY: passed on to the caller.
            return unsafe { self.write_held(request, note) };
        }
        // SAFETY: passed on to the caller.
        unsafe { self.write_admitted(request, note, CtrlFlags::empty()) }
    }

    /// [`Self::write`] where the queue seems full: it may have room by now, and
    /// what comes next may have to carry a fence.
    #[cold]
    #[inline(never)]
    unsafe fn write_held(
        &mut self,
        request: &SendRequest<'_>,
        note: u32,
    ) -> Result<Written, PostError> {
        self.refresh()?;
        let fence = core::mem::take(&mut self.next_fence);
        // SAFETY: passed on to the caller.
        let written = unsafe { self.write_admitted(request, note, fence) };
        if written.is_err() && !fence.is_empty() {
            self.fence_next(fence);
        }
        written
    }

    #[inline(always)]
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
        Ok(self.write_ctrl(request, note, &head, units, fence))
    }

    #[inline(never)]
    unsafe fn write_out_of_line(
        &mut self,
        request: &SendRequest<'_>,
    ) -> Result<Written, PostError> {
        // SAFETY: passed on to the caller.
        unsafe { self.write(request, 0) }
    }

    /// Begins a WQE at the producer, which the credits say is free: the remote
    /// address, if it has one. `None` for a marker, which has nothing that could
    /// be begun.
    #[inline(always)]
    fn write_head(&mut self, request: &SendRequest<'_>) -> Option<Head> {
        let index = self.size.index(self.producer);
        // SAFETY: `index` is below the WQEBB count.
        let wqe = unsafe { self.buf.add(index * WQEBB) };
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
                index,
                wqe,
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
            index,
            wqe,
            opcode,
            imm,
            body: third,
            units: 2,
        })
    }

    /// Writes a NOP, signalled: a control segment and nothing else.
    fn write_marker(&mut self, request: &SendRequest<'_>, note: u32, fence: CtrlFlags) -> Written {
        let index = self.size.index(self.producer);
        // SAFETY: `index` is below the WQEBB count.
        let wqe = unsafe { self.buf.add(index * WQEBB) };
        let head = Head {
            index,
            wqe,
            opcode: WqeOpcode::Nop,
            imm: 0,
            body: wqe,
            units: 1,
        };
        let signalled = SendRequest {
            flags: request.flags & SendFlags::FENCE | SendFlags::SIGNALED,
            ..*request
        };
        self.write_ctrl(&signalled, note, &head, 0, fence)
    }

    /// Completes a WQE whose body is `body_units` long: from here on it is
    /// posted, but for the doorbell.
    #[inline(always)]
    fn write_ctrl(
        &mut self,
        request: &SendRequest<'_>,
        note: u32,
        head: &Head,
        body_units: u32,
        fence: CtrlFlags,
    ) -> Written {
        let units = head.units + body_units;
        let mut flags = CtrlFlags::from_bits_truncate(request.flags.bits());
        if !flags.contains(CtrlFlags::FENCE) {
            // The larger one includes it.
            flags |= fence;
        }
        self.finish(request.cookie, note, head, units, flags)
    }

    /// Writes the control segment of a WQE that is `units` long, and counts it.
    #[inline(always)]
    fn finish(
        &mut self,
        cookie: u64,
        note: u32,
        head: &Head,
        units: u32,
        flags: CtrlFlags,
    ) -> Written {
        let index = self.producer as u16;
        let ctrl = CtrlSegment::new(head.opcode, index, self.qpn_shifted, units, flags, head.imm);
        // SAFETY: the first unit of this WQE.
        unsafe { write_unit(head.wqe, ctrl.to_words()) };
        // SAFETY: `index` is below the WQEBB count, which is the number of
        // entries, and the consumer that owns them outlives this half.
        let entry = unsafe { self.entries.add(head.index).as_ref() };
        entry.cookie.store(cookie, Ordering::Relaxed);
        entry.note.store(note, Ordering::Relaxed);
        entry.posted.store(self.credits.take(1), Ordering::Relaxed);
        self.producer = self
            .producer
            .wrapping_add(units.div_ceil((WQEBB / UNIT) as u32));
        Written {
            ctrl,
            index: head.index,
            units,
        }
    }

    /// Data segments, those of length 0 left out. Answers their number.
    #[inline(always)]
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
    #[inline(always)]
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
    #[inline(always)]
    unsafe fn copy_in(
        &self,
        mut at: NonNull<u8>,
        mut from: *const u8,
        mut length: usize,
    ) -> NonNull<u8> {
        let room = self.end.as_ptr().addr() - at.as_ptr().addr();
        if length > room {
            // SAFETY: `room` bytes are left in the ring, and the source has more.
            unsafe { core::ptr::copy_nonoverlapping(from, at.as_ptr(), room) };
            // SAFETY: within the source.
            from = unsafe { from.add(room) };
            length -= room;
            at = self.buf;
        }
        // SAFETY: `length` bytes fit between `at` and the end of the ring.
        unsafe { core::ptr::copy_nonoverlapping(from, at.as_ptr(), length) };
        // SAFETY: stays within, or one past, the ring.
        unsafe { at.add(length) }
    }

    #[cold]
    #[inline(never)]
    fn refresh(&mut self) -> Result<(), PostError> {
        if !self.credits.is_open() {
            return Err(PostError::NotReady);
        }
        if self.credits.refresh(self.retired()) {
            Ok(())
        } else {
            Err(PostError::QueueFull)
        }
    }

    #[inline(always)]
    fn publish(&mut self) {
        barrier::before_record();
        self.record.set(self.producer & 0xffff);
    }

    /// The doorbell for one request: the whole WQE if the register takes it.
    #[inline(always)]
    fn ring_single(&mut self, written: Written) {
        if written.units > 1 && written.units <= self.blue_flame_units {
            self.publish();
            // SAFETY: a WQE of this ring, which `write` has just completed and
            // which is no longer than a half of the register.
            unsafe {
                self.register.blue_flame(BlueFlame {
                    wqe: self.buf.add(written.index * WQEBB),
                    wqebbs: written.units.div_ceil((WQEBB / UNIT) as u32),
                    ring: self.buf,
                    ring_end: self.end.as_ptr(),
                });
            }
        } else {
            self.ring(written);
        }
    }

    #[inline(always)]
    fn ring(&mut self, last: Written) {
        self.publish();
        self.register.ring(last.ctrl.doorbell());
    }
}

// What `write_ctrl` relies on: the flags that the device knows have its values.
const _: () = {
    assert!(SendFlags::SIGNALED.bits() == CtrlFlags::CQ_UPDATE.bits());
    assert!(SendFlags::SOLICITED.bits() == CtrlFlags::SOLICITED.bits());
    assert!(SendFlags::FENCE.bits() == CtrlFlags::FENCE.bits());
    assert!(SendFlags::INLINE.bits() & CtrlFlags::all().bits() == 0);
    // What is left out of a request's flags is nobody's by accident.
    assert!(SendFlags::all().bits() & CtrlFlags::SMALL_FENCE.bits() == 0);
};

#[cfg(test)]
mod tests;
