//! Runs of a list: consecutive sends of one segment are written by one short loop.
//!
//! A loop over [`SendProducer::try_post`] has branches for every operation, and an
//! outlined call for requests that need the slow path, so LLVM loads and stores the
//! fields of the ring for each request. The loop of a run has no call. It copies what it
//! needs of the ring to locals, and stores the counters once at its end.

use core::borrow::Borrow;

use super::one::InlineLimits;
use super::{SendProducer, Written, one, wqebbs};
use crate::request::{Message, Segment, SendFlags, SendOp, SendRequest};
use crate::units::write_unit;
use crate::wire::{CtrlFlags, CtrlSegment, UNIT, WQEBB, WqeOpcode, inline_units};

/// A send of a list: segment, `wr_id`, flags and `wr_data`.
type Send<S> = (S, u64, SendFlags, u32);

impl SendProducer {
    /// Posts sends of messages, as far as the fast path takes them, and rings the doorbell
    /// once. They are signalled, those of up to `inline` bytes are inline, and the `wr_data`
    /// of each is its length. `message` returns a message of the list, the same one each time
    /// that it is called for an item; `None` ends the list.
    /// Returns how many are posted.
    ///
    /// # Safety
    /// As for [`Self::post`], for every message.
    #[inline(always)]
    pub unsafe fn try_post_messages<T>(
        &mut self,
        list: &[T],
        message: impl Fn(&T) -> Option<Message>,
        inline: u32,
    ) -> usize {
        let send = |item: &T| {
            let Message { segment, wr_id } = message(item)?;
            let length = segment.length;
            let flags = match length <= inline {
                true => SendFlags::SIGNALED.union(SendFlags::INLINE),
                false => SendFlags::SIGNALED,
            };
            Some((segment, wr_id, flags, length))
        };
        let mut posted = 0;
        let mut last = None;
        if !self.credits.exhausted() || self.finds_room() {
            // SAFETY: the segments' memory stays until the requests complete.
            while let Some((count, written)) = unsafe { self.write_run(&list[posted..], &send) } {
                posted += count;
                last = Some(written);
            }
        }
        if let Some(written) = last {
            self.ring(posted, written);
        }
        posted
    }

    /// Writes a run from the front of `requests`, as far as there is room. Returns how many
    /// requests it wrote, and the last of them; `None` if the first needs another path.
    ///
    /// # Safety
    /// As for [`Self::post`], for every request.
    #[inline(always)]
    pub(super) unsafe fn try_write_run(
        &mut self,
        requests: &[SendRequest<'_>],
    ) -> Option<(usize, Written)> {
        // SAFETY: the segments' memory stays until the requests complete.
        unsafe { self.write_run(requests, &listed) }
    }

    /// Writes a run from the front of a list; `send` returns a send of it.
    ///
    /// # Safety
    /// As for [`Self::post`], for every request.
    #[inline(always)]
    unsafe fn write_run<'a, T, S: Borrow<Segment>>(
        &mut self,
        list: &'a [T],
        send: &impl Fn(&'a T) -> Option<Send<S>>,
    ) -> Option<(usize, Written)> {
        let list = &list[..list.len().min(self.credits.room())];
        let (first, _, flags, _) = send(list.first()?)?;
        let length = first.borrow().length;
        let repeats = |(next, _, flags, _): Send<S>| {
            next.borrow().length == length && flags.contains(SendFlags::INLINE)
        };
        // SAFETY: the segments' memory stays until the requests complete.
        let (count, units) = unsafe {
            if !flags.contains(SendFlags::INLINE) {
                self.write_equal_run::<false, _, _>(list, send, length)
            } else if list.get(1).and_then(send).is_some_and(repeats) {
                self.write_equal_run::<true, _, _>(list, send, length)
            } else {
                self.write_inline_run(list, send)
            }
        };
        (count != 0).then(|| (count as usize, self.last_of_run(units)))
    }

    /// Writes the requests at the front of a list that fits the queue whose WQEs have the same
    /// length: inline messages of this length, or not inline, as `INLINE` says. Ends before the
    /// end of the ring. Returns their number, and the units of the last one.
    /// Outlined, so that the variables of callers take no registers of the loop.
    ///
    /// # Safety
    /// As for [`Self::post`], for every request.
    #[inline(never)]
    unsafe fn write_equal_run<'a, const INLINE: bool, T, S: Borrow<Segment>>(
        &mut self,
        list: &'a [T],
        send: &impl Fn(&'a T) -> Option<Send<S>>,
        length: u32,
    ) -> (u32, u32) {
        let limits = InlineLimits::of(self);
        if INLINE && !limits.allow(length) {
            return (0, 0);
        }
        let units = 1 + if INLINE { inline_units(length) } else { 1 };
        let blocks = wqebbs(units) as usize;
        let mut counter = self.producer;
        let index = self.size.index(u32::from(counter));
        let until_end = (self.size.count() as usize - index) / blocks;
        // SAFETY: `index` is below the WQEBB count, which is the number of entries too.
        let (mut wqe, mut entry) =
            unsafe { (self.buf.add(index * WQEBB), self.entries.add(index)) };
        let (qpn_shifted, start) = (self.qpn_shifted, self.credits.posted());
        let mut posted = start;
        for item in &list[..list.len().min(until_end)] {
            let Some((segment, wr_id, flags, wr_data)) = send(item) else {
                break;
            };
            if flags.contains(SendFlags::INLINE) != INLINE {
                break;
            }
            let segment = segment.borrow();
            // SAFETY: the second unit of the WQE's first WQEBB.
            let body = unsafe { wqe.add(UNIT) };
            if INLINE {
                if segment.length != length {
                    break;
                }
                // SAFETY: the length is allowed. The WQE is free, because there is room, and ends
                // before the end of the ring; the rest is required of the caller.
                unsafe { limits.copy(segment, body) };
            } else {
                // SAFETY: as above.
                if unsafe { one::write_data(segment, body) }.is_none() {
                    break;
                }
            }
            let ctrl = control(counter, qpn_shifted, units, flags);
            // SAFETY: the first unit of this WQE.
            unsafe { write_unit(wqe, ctrl.to_words()) };
            posted = posted.wrapping_add(1);
            // SAFETY: the entry of this WQE, whose owner outlives this half.
            unsafe { entry.as_ref() }.store(wr_id, posted, wr_data);
            counter = counter.wrapping_add(blocks as u16);
            // SAFETY: after the WQE and its entries comes at most the end of the ring.
            (wqe, entry) = unsafe { (wqe.add(blocks * WQEBB), entry.add(blocks)) };
        }
        let written = posted.wrapping_sub(start);
        self.producer = counter;
        self.credits.take(written);
        (written, units)
    }

    /// Writes the inline requests at the front of a list that fits the queue, of any lengths.
    /// Returns as [`Self::write_equal_run`] does.
    ///
    /// # Safety
    /// As for [`Self::post`], for every request.
    #[inline(never)]
    unsafe fn write_inline_run<'a, T, S: Borrow<Segment>>(
        &mut self,
        list: &'a [T],
        send: &impl Fn(&'a T) -> Option<Send<S>>,
    ) -> (u32, u32) {
        let Self {
            buf,
            size,
            qpn_shifted,
            entries,
            ..
        } = *self;
        let limits = InlineLimits::of(self);
        let mut counter = self.producer;
        let start = self.credits.posted();
        let mut posted = start;
        let mut units = 0;
        for item in list {
            let Some((segment, wr_id, flags, wr_data)) = send(item) else {
                break;
            };
            if !flags.contains(SendFlags::INLINE) {
                break;
            }
            let index = size.index(u32::from(counter));
            // SAFETY: `index` is below the WQEBB count.
            let wqe = unsafe { buf.add(index * WQEBB) };
            // SAFETY: the second unit of the WQE's first WQEBB.
            let body = unsafe { wqe.add(UNIT) };
            // SAFETY: the WQE is free, because there is room; the rest is required of the
            // caller.
            let Some(data) = (unsafe { limits.write(segment.borrow(), body) }) else {
                break;
            };
            units = 1 + data;
            let ctrl = control(counter, qpn_shifted, units, flags);
            // SAFETY: the first unit of this WQE.
            unsafe { write_unit(wqe, ctrl.to_words()) };
            posted = posted.wrapping_add(1);
            // SAFETY: the index is below the WQEBB count, which is the number of
            // entries, and the consumer that owns them outlives this half.
            let entry = unsafe { entries.add(index).as_ref() };
            entry.store(wr_id, posted, wr_data);
            counter = counter.wrapping_add(wqebbs(units) as u16);
        }
        let written = posted.wrapping_sub(start);
        self.producer = counter;
        self.credits.take(written);
        (written, units)
    }

    /// Returns the last WQE of a run, which has this many units.
    #[inline(always)]
    fn last_of_run(&self, units: u32) -> Written {
        let counter = self.producer.wrapping_sub(wqebbs(units) as u16);
        let index = self.size.index(u32::from(counter));
        // The doorbell has no flags.
        let ctrl = control(counter, self.qpn_shifted, units, SendFlags::empty());
        Written {
            doorbell: ctrl.doorbell(),
            // SAFETY: `index` is below the WQEBB count.
            wqe: unsafe { self.buf.add(index * WQEBB) },
            units,
        }
    }
}

/// Returns a request as a send of a run, if it is one.
#[inline(always)]
fn listed<'a>(request: &'a SendRequest<'a>) -> Option<Send<&'a Segment>> {
    match request.segments {
        [segment] if matches!(request.op, SendOp::Send) => {
            Some((segment, request.wr_id, request.flags, 0))
        }
        _ => None,
    }
}

/// Returns the control segment of a send, which carries no fence but its own.
#[inline(always)]
fn control(counter: u16, qpn_shifted: u32, units: u32, flags: SendFlags) -> CtrlSegment {
    let flags = CtrlFlags::from_bits_truncate(flags.bits());
    CtrlSegment::new(WqeOpcode::Send, counter, qpn_shifted, units, flags, 0)
}
