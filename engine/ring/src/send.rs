//! The send queue: WQEs of one or more 64-byte blocks (WQEBB), without gaps.
//!
//! A WQE starts where the last one ended and may wrap around the end of the
//! ring. A WQE must not be overwritten before it completes. No more than
//! `capacity` requests are outstanding, and `SendConsumer::new` chooses
//! `capacity` so that as many of the longest WQEs fit the ring. So blocks need
//! not be counted per post.
//!
//! Unsignalled requests are retired by the next completion: the table entry of
//! its WQE counter has the number of requests posted up to and including that
//! one.

use core::ptr::NonNull;
use core::sync::atomic::Ordering;

use crate::layout::SendLayout;
use crate::mmio::{BlueFlame, DoorbellRecord, Register, barrier};
use crate::request::{ListError, PostError, SendFlags, SendRequest};
use crate::wire::{Be64, CtrlFlags, UNIT, WQEBB};
use crate::{Credits, RingSize};

use consumer::PostedWqe;
pub use consumer::{Retired, SendConsumer};
pub use encode::Head;

mod bind;
mod consumer;
mod encode;
mod list;
mod one;
mod slow;

/// How a send queue may write its doorbell register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DoorbellPolicy {
    /// Whether a single request may be copied to the register. Only effective
    /// on a register that is exclusively this queue's.
    pub blue_flame: bool,
    /// Whether each doorbell takes the lock of the register, because other threads may ring it
    /// at the same time.
    pub locked: bool,
}

/// The posting half.
#[derive(Debug)]
pub struct SendProducer {
    buf: NonNull<u8>,
    end: NonNull<u8>,
    size: RingSize,
    /// The number of WQEBBs written so far, modulo 2^16 as the device counts
    /// them. A ring has at most 2^15.
    producer: u16,
    credits: Credits,
    /// As control segments have it.
    qpn_shifted: u32,
    max_segments: u32,
    max_inline: u32,
    /// The most inline bytes of a request on the fast path.
    short_inline: u32,
    /// The longest WQE, in units, that may be copied to the register; 0: none.
    blue_flame_units: u32,
    record: DoorbellRecord,
    /// The consumer's entries, by WQEBB: kept here so that a post does not
    /// touch the cache line that the poller writes.
    entries: NonNull<PostedWqe>,
    consumer: NonNull<SendConsumer>,
    register: Register,
    /// Whether there is room for binds.
    windows: bool,
    /// Whether the device has atomic operations.
    atomics: bool,
    /// The fence flags of the next WQE. Setting them also holds back the credits, so
    /// that only the path of a full queue has to check this field.
    next_fence: CtrlFlags,
}

// SAFETY: `buf` and `end` are DMA memory, bound to no thread; only this half
// writes it. The consumer is `Sync` and outlives this half, as promised to
// `new`.
unsafe impl Send for SendProducer {}

/// Where a WQE begins.
#[derive(Clone, Copy)]
struct WqeStart {
    /// The WQEBB as the device counts it.
    counter: u16,
    /// The WQEBB in the ring.
    index: usize,
    wqe: NonNull<u8>,
}

/// Returns how many WQEBBs a WQE takes. Does not use `div_ceil`, which has
/// extra instructions for overflow.
#[inline(always)]
const fn wqebbs(units: u32) -> u32 {
    const PER_WQEBB: u32 = (WQEBB / UNIT) as u32;
    (units + PER_WQEBB - 1) >> PER_WQEBB.ilog2()
}

/// A WQE in the ring that is not published in the doorbell record yet.
#[derive(Clone, Copy)]
struct Written {
    /// The value for the register.
    doorbell: Be64,
    /// Its first WQEBB.
    wqe: NonNull<u8>,
    units: u32,
}

impl SendProducer {
    /// Returns the posting half of the ring whose other half is `consumer`. Closed
    /// for posts until [`Self::open`].
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
            short_inline: one::short_inline(layout.max_inline),
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
            register: unsafe {
                Register::at(register.reg, register.half_size, policy.locked && !copies)
            },
            windows: layout.windows,
            atomics: layout.atomics,
            next_fence: CtrlFlags::empty(),
        }
    }

    #[inline(always)]
    fn retired(&self) -> u32 {
        // SAFETY: the consumer outlives this half, as promised to `new`.
        let consumer = unsafe { self.consumer.as_ref() };
        // Acquire: the poller has read the entries and WQEs that come back.
        consumer.retired.load(Ordering::Acquire)
    }

    /// Allows posts, once the queue pair is ready to send.
    pub fn open(&mut self) {
        self.credits.open(self.retired());
        if !self.next_fence.is_empty() {
            self.credits.hold();
        }
    }

    /// Refuses posts from now on.
    #[cfg(test)]
    pub fn close(&mut self) {
        self.credits.close();
    }

    /// Returns whether every request that was posted has been retired.
    pub fn is_idle(&self) -> bool {
        self.credits.posted() == self.retired()
    }

    /// Returns how many requests may be outstanding.
    pub fn capacity(&self) -> u32 {
        self.credits.capacity()
    }

    /// Limits the number of outstanding requests to `most`, but not below the
    /// number that is outstanding.
    pub fn limit(&mut self, most: u32) {
        // SAFETY: the consumer outlives this half, as promised to `new`.
        let capacity = unsafe { self.consumer.as_ref() }.capacity.min(most);
        if self.credits.is_open() {
            // Not held back meanwhile: what is outstanding shows.
            self.credits.open(self.retired());
        }
        self.credits.set_capacity(capacity);
        if self.credits.is_open() {
            // Credits that were held back for a fence stay held back.
            self.open();
        }
    }

    /// Posts one request and rings the doorbell. Its completion carries `wr_data`.
    ///
    /// # Errors
    /// [`PostError`]; nothing is posted then.
    ///
    /// # Safety
    /// The memory of the segments is readable by the processor now if the
    /// request is inline; otherwise it is left alone (for a read: writable and
    /// unused) until the request completes.
    #[inline(always)]
    pub unsafe fn post(
        &mut self,
        request: &SendRequest<'_>,
        wr_data: u32,
    ) -> Result<(), PostError> {
        // SAFETY: the segments' memory stays until the requests complete.
        if !unsafe { self.try_post(request, wr_data) } {
            // SAFETY: the segments' memory stays until the requests complete.
            unsafe { self.post_slow(&request.reborrow(), wr_data) }?;
        }
        Ok(())
    }

    /// Does what [`Self::post`] does, for every request.
    #[inline(never)]
    unsafe fn post_slow(
        &mut self,
        request: &SendRequest<'_>,
        wr_data: u32,
    ) -> Result<(), PostError> {
        // SAFETY: the segments' memory stays until the requests complete.
        let written = unsafe { self.write(request, wr_data) }?;
        self.ring(1, written);
        Ok(())
    }

    /// Posts several requests and rings the doorbell once. Their `wr_data` is 0.
    ///
    /// # Errors
    /// [`ListError`]; the requests before the bad one are posted.
    ///
    /// # Safety
    /// As for [`Self::post`], for every request.
    #[inline]
    pub unsafe fn post_list(&mut self, requests: &[SendRequest<'_>]) -> Result<(), ListError> {
        let mut last = None;
        let mut posted = 0;
        let mut result = Ok(());
        while let rest @ [request, ..] = &requests[posted..] {
            // SAFETY: the segments' memory stays until the requests complete.
            let (count, written) = match unsafe { self.try_write_run(rest) } {
                Some(run) => run,
                // SAFETY: the segments' memory stays until the requests complete.
                None => match unsafe { self.write(request, 0) } {
                    Ok(written) => (1, written),
                    Err(error) => {
                        result = Err(ListError { posted, error });
                        break;
                    }
                },
            };
            last = Some(written);
            posted += count;
        }
        if let Some(written) = last {
            self.ring(posted, written);
        }
        result
    }

    /// Returns whether there is room for one more request that need not carry a fence, although
    /// the credits are exhausted. A queue that is kept full calls this for each request, so it is
    /// inlined.
    #[inline(always)]
    fn finds_room(&mut self) -> bool {
        self.next_fence.is_empty() && self.has_room_now()
    }

    /// Returns whether there is room after reading the consumer's counter.
    #[inline(always)]
    fn has_room_now(&mut self) -> bool {
        let retired = self.retired();
        self.credits.refresh(retired)
    }

    /// Checks that there is room for one more request. Returns the fence that
    /// the request has to carry.
    fn check_room(&mut self) -> Result<CtrlFlags, PostError> {
        if self.credits.exhausted() && !self.has_room_now() {
            return Err(if self.credits.is_open() {
                PostError::QueueFull
            } else {
                PostError::NotReady
            });
        }
        Ok(core::mem::take(&mut self.next_fence))
    }

    /// Returns where the next WQE begins.
    #[inline(always)]
    fn place(&self) -> WqeStart {
        let counter = self.producer;
        let index = self.size.index(u32::from(counter));
        WqeStart {
            counter,
            index,
            // SAFETY: `index` is below the WQEBB count.
            wqe: unsafe { self.buf.add(index * WQEBB) },
        }
    }

    /// Rings the doorbell for `count` requests, of which `last` is the last: the doorbell
    /// record, then the register. A single request is copied to the register as a whole if the
    /// register allows it.
    #[inline(always)]
    fn ring(&mut self, count: usize, last: Written) {
        barrier::before_record();
        self.record.set(u32::from(self.producer));
        // A register that other queue pairs ring too takes no BlueFlame copies:
        // `blue_flame_units` is 0.
        if count == 1 && last.units > 1 && last.units <= self.blue_flame_units {
            // SAFETY: a WQE of this ring, which has just been completed and
            // which is no longer than a half of the register.
            unsafe {
                self.register.blue_flame(BlueFlame {
                    wqe: last.wqe,
                    wqebbs: wqebbs(last.units),
                    ring: self.buf,
                    ring_end: self.end.as_ptr(),
                });
            }
        } else {
            self.register.ring(last.doorbell);
        }
    }
}

// Control segments are written without translating the flags of requests.
const _: () = {
    assert!(SendFlags::SIGNALED.bits() == CtrlFlags::CQ_UPDATE.bits());
    assert!(SendFlags::SOLICITED.bits() == CtrlFlags::SOLICITED.bits());
    assert!(SendFlags::FENCE.bits() == CtrlFlags::FENCE.bits());
    assert!(SendFlags::INLINE.bits() & CtrlFlags::all().bits() == 0);
    // No request sets the small fence.
    assert!(SendFlags::all().bits() & CtrlFlags::SMALL_FENCE.bits() == 0);
};

#[cfg(test)]
mod tests;
