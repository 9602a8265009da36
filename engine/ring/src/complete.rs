//! The completion ring: finding the next CQE, returning it to the device, and
//! arming the queue.
//!
//! The device writes the ownership byte of an entry last. The lowest bit of
//! that byte is the owner bit, which changes with every lap. The consumer index
//! is published in the first doorbell record, once per poll that consumed
//! something; no doorbell register is written for it.
//!
//! Decisions: `docs/decisions/073-lazy-consumer-record.md`, `docs/decisions/074-look-ahead.md`

use core::ptr::NonNull;
use core::sync::atomic::AtomicU8;

use crate::layout::{CompletionLayout, LayoutError};
use crate::mmio::{ArmRegister, DmaCell, DoorbellRecord, Word, barrier};
use crate::scatter::Payload;
use crate::wire::{
    Be32, Be64, Cqe, CqeOpcode, CqeTail, InlineScatter, OwnOp, RequestQpn, cqe_offset as offset,
};
use crate::{RingSize, cold_path, distance24};

mod run;

pub use run::Run;

/// Bytes of an entry that the device defines.
const CQE: usize = 64;
/// The entries that a ring looks ahead by: enough for their cache misses to overlap, few
/// enough to stay in the first-level cache.
pub const GROUP: u32 = 16;

/// The entries of a completion ring: their address, size and count. Any thread
/// may read them through this type.
#[derive(Clone, Copy, Debug)]
pub struct Entries {
    /// The first entry's 64 bytes (the second half of a 128-byte entry).
    first: NonNull<u8>,
    size: RingSize,
    stride: usize,
    /// The doorbell record.
    consumer: DoorbellRecord,
}

// SAFETY: DMA memory, bound to no thread; looked at by single loads only.
unsafe impl Send for Entries {}
// SAFETY: as above. The one store (`cq_clean`) is the poller's.
unsafe impl Sync for Entries {}

/// One entry of the ring, which the device may or may not have written yet.
///
/// Each method reads ring memory again. Its result is valid once
/// [`CompletionRing::peek`] or [`Run::peek`] has found the entry written,
/// and until [`CompletionRing::publish`] gives it back to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot(NonNull<u8>);

impl Slot {
    /// Returns the last byte for two threads: the poller's, which marks stale entries, and
    /// another that looks whether the entry is written.
    #[inline(always)]
    fn shared_own_op(self) -> DmaCell<u8> {
        // SAFETY: inside the 64 bytes of an entry of the ring.
        unsafe { DmaCell::new(self.0.add(offset::OWN_OP)) }
    }

    /// Reads a field as it is in memory, for the poller. The device writes it, and no other
    /// thread.
    #[inline(always)]
    fn field<T: Word>(self, offset: usize) -> T {
        // SAFETY: the offsets are those of `wire::cqe`, aligned for their type
        // and inside the 64 bytes of an entry of the ring.
        unsafe { self.0.add(offset).cast::<T>().read_volatile() }
    }

    /// Returns the last byte: opcode, format and owner bit.
    #[inline(always)]
    pub fn own_op(self) -> OwnOp {
        OwnOp(self.field(offset::OWN_OP))
    }

    /// Returns the last eight bytes.
    #[inline]
    pub fn tail(self) -> CqeTail {
        CqeTail::from_bits(self.field(offset::TAIL))
    }

    /// Returns the last eight bytes if the entry is of the queue pair and the
    /// operation `op_qpn`: one load for both.
    #[inline(always)]
    pub fn tail_of(self, op_qpn: RequestQpn) -> Option<CqeTail> {
        let bits = self.field::<u64>(offset::TAIL);
        const _: () = assert!(offset::REQUEST_QPN == offset::TAIL);
        let [a, b, c, d, ..] = bits.to_ne_bytes();
        let found = Be32::from_bits(u32::from_ne_bytes([a, b, c, d]));
        (RequestQpn(found.get()) == op_qpn).then_some(CqeTail::from_bits(bits))
    }

    /// Returns the queue pair, and the operation of a request.
    #[inline(always)]
    pub fn request_qpn(self) -> RequestQpn {
        RequestQpn(u32::from_be(self.field(offset::REQUEST_QPN)))
    }

    /// Returns which request the completion is of: the WQEBB counter at its start
    /// (send queue), its WQE counter (receive queue), or its WQE's index (shared
    /// receive queue).
    #[inline(always)]
    pub fn wqe_counter(self) -> u16 {
        u16::from_be(self.field(offset::WQE_COUNTER))
    }

    /// Returns the bytes received or read.
    #[inline(always)]
    pub fn byte_count(self) -> u32 {
        u32::from_be(self.field(offset::BYTE_COUNT))
    }

    /// Returns when the device wrote the entry, in ticks of its clock.
    /// Undefined in an error CQE.
    #[inline]
    pub fn timestamp(self) -> u64 {
        Be64::from_bits(self.field(offset::TIMESTAMP)).get()
    }

    /// Returns the immediate data in host order, where the opcode has any.
    #[inline(always)]
    pub fn imm(self) -> u32 {
        u32::from_be(self.field(offset::IMM))
    }

    /// Returns a copy of the whole entry.
    pub fn copy(self) -> Cqe {
        Cqe::from_words(core::array::from_fn(|word| self.field(8 * word)))
    }

    /// Returns the address of the first 32 bytes, which may hold a payload.
    #[inline(always)]
    pub(crate) fn first_half(self) -> *const u8 {
        self.0.as_ptr()
    }

    /// Returns the payload that the device left in the entry, at the full size
    /// of the format. `None` if the format does not fit the ring.
    fn payload(self, format: InlineScatter, stride: usize) -> Option<Payload> {
        let mut payload = [0; 8];
        let (from, words) = match format {
            InlineScatter::None => return None,
            InlineScatter::First32 => (self.0, 4),
            InlineScatter::Before64 if stride == 2 * CQE => {
                // SAFETY: the first half of this 128-byte entry.
                (unsafe { self.0.sub(CQE) }, 8)
            }
            InlineScatter::Before64 => return None,
        };
        for (word, value) in payload.iter_mut().take(words).enumerate() {
            // SAFETY: one of the `words` aligned words of the entry.
            *value = unsafe { DmaCell::<u64>::new(from.cast().add(word)) }.read();
        }
        Some(payload)
    }
}

impl Entries {
    #[inline(always)]
    fn slot(&self, counter: u32) -> Slot {
        // SAFETY: the index is below the entry count.
        Slot(unsafe { self.first.add(self.size.index(counter) * self.stride) })
    }

    /// Returns whether the device has written the entry of `counter`.
    #[inline(always)]
    fn is_written(&self, counter: u32, own_op: OwnOp) -> bool {
        (own_op.0 & OwnOp::OWNER != 0) == self.size.owner(counter)
    }

    /// Returns whether the device has written an entry that was not consumed
    /// yet. May be called from any thread, as [`Self::written_end`].
    pub fn holds_any(&self) -> bool {
        let consumed = self.consumer.get();
        self.written_end() != consumed & 0xff_ffff
    }

    /// Returns the counter after the last written entry, 24 bits. Every
    /// completion that was written before the call lies before it.
    ///
    /// May be called from any thread while another one polls. Meanwhile the
    /// polling thread releases entries and the device writes them again, so an
    /// entry that looks unwritten ends the search only if it has not been
    /// released.
    pub fn written_end(&self) -> u32 {
        let mut counter = self.consumer.get();
        // An entry that was written before the call cannot be further ahead.
        let bound = counter.wrapping_add(self.size.count());
        loop {
            if distance24(counter, bound) <= 0 {
                return counter;
            }
            let own_op = OwnOp(self.slot(counter).shared_own_op().read());
            if self.is_written(counter, own_op) && own_op.opcode() != CqeOpcode::INVALID {
                counter = counter.wrapping_add(1) & 0xff_ffff;
                continue;
            }
            barrier::after_ownership();
            let consumed = self.consumer.get();
            if distance24(counter, consumed) <= 0 {
                return counter;
            }
            counter = consumed;
        }
    }
}

/// The position of the poller.
#[derive(Debug)]
struct Cursor {
    /// The number of consumed entries. The device sees 24 bits of it.
    consumer: u64,
    /// The position of the entry at `consumer`, updated together with it, so
    /// that a poll need not compute it.
    next: Position,
    /// The last entry of the group that has the next one.
    stop: Slot,
    wrap: Wrap,
}

/// The next entry: its address, and the owner bit that it has once the device has
/// written it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Position {
    slot: Slot,
    owner: u8,
}

/// Where a ring of entries wraps around, and where the poller looks ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wrap {
    /// The last entry; `first` follows it.
    last: Slot,
    first: Slot,
    stride: usize,
    /// Bytes from the first entry of a group to its last one. There is one group, the whole
    /// ring, unless `looks_ahead`.
    group: usize,
    looks_ahead: bool,
}

impl Wrap {
    /// Returns the entry after `slot`, and whether a group begins there; `stop` is moved to its
    /// last entry then. Inverts the owner bit in `own_op` where the next lap begins.
    ///
    /// # Safety
    /// `slot` is an entry of this ring, and `stop` the last one of its group.
    #[inline(always)]
    unsafe fn after(&self, slot: Slot, stop: &mut Slot, own_op: &mut u8) -> (Slot, bool) {
        if slot.0 != stop.0 {
            // SAFETY: there is an entry after this one, which is not the last of the ring.
            return (Slot(unsafe { slot.0.add(self.stride) }), false);
        }
        cold_path();
        let next = if slot.0 == self.last.0 {
            *own_op ^= OwnOp::OWNER;
            self.first
        } else {
            // SAFETY: as above.
            Slot(unsafe { slot.0.add(self.stride) })
        };
        // SAFETY: the ring consists of whole groups.
        *stop = Slot(unsafe { next.0.add(self.group) });
        (next, true)
    }
}

/// The written entries among the next [`GROUP`]. What is read of the last of them may be of
/// an entry that is being written.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    next: Option<Slot>,
    stop: Slot,
    /// A byte with the owner bit of written entries.
    owner: u8,
    stride: usize,
}

impl Iterator for Group {
    type Item = Slot;

    #[inline(always)]
    fn next(&mut self) -> Option<Slot> {
        let slot = self.next?;
        if (slot.own_op().0 ^ self.owner) & OwnOp::OWNER != 0 {
            return None;
        }
        self.next = (slot != self.stop).then(|| {
            // SAFETY: there is an entry before `stop`.
            Slot(unsafe { slot.0.add(self.stride) })
        });
        Some(slot)
    }
}

/// Which completion raises an event: [`CompletionRing::arm`]. The values are the command of the
/// doorbell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arm {
    /// The next one.
    Any = 0,
    /// The next one that is solicited, or an error.
    Solicited = 1 << 24,
}

/// The consumer half, used by the polling thread.
#[derive(Debug)]
pub struct CompletionRing {
    entries: Entries,
    cursor: Cursor,
    /// As many entries were found written by [`CompletionRing::written`], or consumed since.
    counted: u64,
    arm_record: DoorbellRecord,
    arm_register: ArmRegister,
    cqn: u32,
}

impl CompletionRing {
    /// Returns the ring that `layout` describes, with nothing consumed yet.
    ///
    /// # Errors
    /// The layout is inconsistent.
    ///
    /// # Safety
    /// As long as the ring, or an [`Entries`], [`Slot`] or [`Run`] of it, is used:
    /// - the memory and the register page that the layout names are valid, and
    ///   aligned as the device demands;
    /// - only this ring and the device use the memory, and only completion queues
    ///   the page.
    pub unsafe fn new(layout: &CompletionLayout) -> Result<Self, LayoutError> {
        // SAFETY: the layout's memory and page are valid as long as the ring is used.
        let ring = unsafe { Self::new_from(layout, 0) }?;
        // The provider marks entries invalid but leaves the owner bit at the
        // value of the first lap. Inverted, the owner bit alone marks the entry as
        // not written, on every lap. Nothing can have completed yet.
        for counter in 0..ring.entries.size.count() {
            let own_op = ring.entries.slot(counter).shared_own_op();
            if OwnOp(own_op.read()).opcode() == CqeOpcode::INVALID {
                own_op.write((CqeOpcode::INVALID.0 << 4) | OwnOp::OWNER);
            }
        }
        Ok(ring)
    }

    /// Does what [`Self::new`] does, but starts at another consumer counter
    /// than 0 and leaves the entries as they are.
    unsafe fn new_from(layout: &CompletionLayout, start: u32) -> Result<Self, LayoutError> {
        let size = RingSize::new(layout.cqe_count)
            .filter(|size| size.count() < 1 << 23)
            .ok_or(LayoutError(
                "the CQE count is not a power of two below 2^23",
            ))?;
        let stride = layout.cqe_size as usize;
        let skip = match stride {
            CQE => 0,
            128 => CQE,
            _ => return Err(LayoutError("the CQE size is neither 64 nor 128")),
        };
        // SAFETY: the second doorbell record of the pair that the layout names.
        let arm_record = unsafe { layout.dbrec.add(1) };
        let entries = Entries {
            // SAFETY: inside the first entry.
            first: unsafe { layout.buf.add(skip) },
            size,
            stride,
            // SAFETY: the layout's record, valid as the caller promises.
            consumer: unsafe { DoorbellRecord::new(layout.dbrec) },
        };
        let consumer = start.into();
        Ok(Self {
            entries,
            counted: consumer,
            cursor: Cursor {
                consumer,
                next: Position {
                    slot: entries.slot(start),
                    owner: u8::from(size.owner(start)),
                },
                stop: entries.slot(size.count() - 1),
                wrap: Wrap {
                    last: entries.slot(size.count() - 1),
                    first: entries.slot(0),
                    stride,
                    group: (size.count() as usize - 1) * stride,
                    looks_ahead: false,
                },
            },
            // SAFETY: as above.
            arm_record: unsafe { DoorbellRecord::new(arm_record) },
            // SAFETY: the layout's page, valid as the caller promises.
            arm_register: unsafe { ArmRegister::new(layout.uar) },
            cqn: layout.cqn,
        })
    }

    /// Returns the entries, which other threads may read.
    pub fn entries(&self) -> Entries {
        self.entries
    }

    /// Returns the next entry and its last byte, whose owner bit is now 0, if the
    /// device has written it. The rest of it may be read then. If its opcode is
    /// [`CqeOpcode::INVALID`], the device has not written it after all.
    #[inline(always)]
    pub fn peek(&self) -> Option<(Slot, OwnOp)> {
        let Position { slot, owner } = self.cursor.next;
        let form = slot.own_op().0 ^ owner;
        barrier::after_ownership();
        (form & OwnOp::OWNER == 0).then_some((slot, OwnOp(form)))
    }

    /// Returns the next entry, and its last byte with the owner bit 0, without looking whether it
    /// is written.
    #[inline(always)]
    pub fn next_slot(&self) -> (Slot, OwnOp) {
        let Position { slot, .. } = self.cursor.next;
        (slot, OwnOp(slot.own_op().0 & !OwnOp::OWNER))
    }

    /// Returns the last byte of the next entry, which the device writes last.
    pub fn next_own_op(&self) -> &AtomicU8 {
        // SAFETY: a byte of the entry, which is mapped as long as the ring. The host only loads it.
        unsafe { AtomicU8::from_ptr(self.cursor.next.slot.0.add(offset::OWN_OP).as_ptr()) }
    }

    /// Returns the number of consumed entries, modulo 2^32.
    #[inline]
    pub fn consumed(&self) -> u32 {
        self.cursor.consumer as u32
    }

    /// Returns how many entries are written and not consumed; `None` if one of them is stale.
    /// Consumes nothing. An entry is looked at once, not again in the next call.
    #[inline(always)]
    pub fn written(&mut self) -> Option<u32> {
        let consumer = self.cursor.consumer;
        if self.counted <= consumer && self.peek().is_none() {
            return Some(0);
        }
        let mut end = self.counted.max(consumer);
        loop {
            let own_op = self.entries.slot(end as u32).own_op();
            if !self.entries.is_written(end as u32, own_op) {
                break;
            }
            if matches!(own_op.opcode(), CqeOpcode::STALE | CqeOpcode::INVALID) {
                cold_path();
                return None;
            }
            end += 1;
        }
        self.counted = end;
        // What was written before these entries is read after them.
        barrier::after_ownership();
        Some((end - consumer) as u32)
    }

    /// Chooses whether [`Self::advance_ahead`] looks ahead. A ring with fewer than
    /// [`GROUP`] entries never does.
    pub fn look_ahead(&mut self, looks_ahead: bool) {
        let entries = self.entries.size.count();
        let looks_ahead = looks_ahead && entries >= GROUP;
        let group = if looks_ahead { GROUP } else { entries };
        self.cursor.stop = self.entries.slot(self.consumed() | (group - 1));
        let wrap = &mut self.cursor.wrap;
        wrap.group = (group as usize - 1) * wrap.stride;
        wrap.looks_ahead = looks_ahead;
    }

    /// Consumes the next entry. The next [`Self::publish`] returns it to the
    /// device.
    ///
    /// # Safety
    /// [`Self::peek`] has returned that entry, and nothing of it is needed any more.
    #[inline(always)]
    pub unsafe fn advance(&mut self) {
        // SAFETY: `peek` has returned the entry.
        unsafe { self.advance_ahead(|_| {}) };
    }

    /// Does what [`Self::advance`] does. Every [`GROUP`] entries, if the ring looks ahead,
    /// calls `ahead` with the next [`GROUP`] entries, for prefetching what they name.
    ///
    /// # Safety
    /// As for [`Self::advance`].
    #[inline(always)]
    pub unsafe fn advance_ahead(&mut self, ahead: impl FnOnce(Group)) {
        self.cursor.consumer += 1;
        let Cursor {
            next: Position { slot, owner },
            stop,
            wrap,
            ..
        } = &mut self.cursor;
        // SAFETY: an entry of this ring.
        let (next, begins_group) = unsafe { wrap.after(*slot, stop, owner) };
        *slot = next;
        if begins_group && wrap.looks_ahead {
            ahead(Group {
                next: Some(next),
                stop: *stop,
                owner: *owner,
                stride: wrap.stride,
            });
        }
    }

    /// Returns whether at least that many entries behind the next one are written.
    #[inline(always)]
    pub fn has_more(&self, entries: u32) -> bool {
        if entries >= self.entries.size.count() {
            return false;
        }
        let Position { slot: next, owner } = self.cursor.next;
        let Wrap {
            last,
            first,
            stride,
            ..
        } = self.cursor.wrap;
        let address = |slot: Slot| slot.0.as_ptr().addr();
        let mut at = address(next) + entries as usize * stride;
        let mut owner = owner;
        if at > address(last) {
            cold_path();
            at -= address(last) - address(first) + stride;
            owner ^= OwnOp::OWNER;
        }
        // SAFETY: an entry of the ring: the next one, and as many on, less a lap.
        let slot = Slot(unsafe { next.0.byte_offset(at.wrapping_sub(address(next)) as isize) });
        (slot.own_op().0 ^ owner) & OwnOp::OWNER == 0
    }

    /// Returns the consumed entries to the device: publishes the consumer index.
    #[inline(always)]
    pub fn publish(&mut self) {
        barrier::before_release();
        self.entries.consumer.set(self.consumed() & 0xff_ffff);
    }

    /// Returns the payload that came in the next entry, whose last byte says
    /// `format`. `None` if there is none, or if it does not fit the entries.
    pub fn payload(&self, format: InlineScatter) -> Option<Payload> {
        self.cursor.next.slot.payload(format, self.entries.stride)
    }

    /// Invalidates the CQEs of queue pair `qpn` before `end` (24 bits, as
    /// [`Entries::written_end`] returns it) that are not consumed yet: their opcode
    /// becomes [`CqeOpcode::STALE`]. Calls `seen` with each before that.
    pub fn cq_clean(&mut self, qpn: u32, end: u32, mut seen: impl FnMut(CqeTail)) {
        self.counted = self.cursor.consumer;
        for ahead in 0..distance24(self.consumed(), end).max(0) as u32 {
            let counter = self.consumed().wrapping_add(ahead);
            let slot = self.entries.slot(counter);
            let own_op = slot.own_op();
            if !self.entries.is_written(counter, own_op) {
                break;
            }
            barrier::after_ownership();
            let tail = slot.tail();
            if tail.qpn() == qpn && own_op.opcode() != CqeOpcode::STALE {
                seen(tail);
                slot.shared_own_op().write(own_op.stale().0);
            }
        }
    }

    /// Arms the queue: the device raises one event when the next completion is
    /// written, or the next solicited or failed one. Completions that are already
    /// written raise an event too, so: arm, poll once more, then wait.
    ///
    /// `events_read` is the number of events of this queue that have been read
    /// from its channel. The device ignores an arm with the number of an
    /// earlier one.
    #[inline]
    pub fn arm(&mut self, arm: Arm, events_read: u32) {
        let word = ((events_read & 3) << 28) | arm as u32 | (self.consumed() & 0xff_ffff);
        self.arm_record.set(word);
        self.arm_register
            .ring(Be64::new((u64::from(word) << 32) | u64::from(self.cqn)));
    }
}

// SAFETY: DMA memory, bound to no thread; the ring is used through `&mut`.
unsafe impl Send for CompletionRing {}

#[cfg(test)]
mod tests;
