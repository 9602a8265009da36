//! The receive queue of one queue pair.
//!
//! WQEs lie one `stride` apart and consist of data segments only; the device
//! takes them in order. Segments of length 0 are left out. A WQE with fewer
//! segments than fit ends with a terminator (libmlx5 `mlx5_post_recv`).
//!
//! A completion names its receive by the WQE counter, and that receive is
//! reported, as in libmlx5 since v55; earlier versions report the oldest one.
//! Both are the same while the device takes WQEs in order. A ConnectX takes
//! them in another order only for a queue pair that was created with
//! `MLX5DV_QP_CREATE_OOO_DP`, which needs a ring of twice the size and is not
//! supported here.

use core::borrow::Borrow;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::layout::{LayoutError, RecvLayout};
use crate::mmio::{DoorbellRecord, barrier};
use crate::recv_wqe::{PostReceives, RecvWqes};
use crate::request::{PostError, RecvRequest, Segment};
use crate::scatter::{FirstSegment, Units, read_unit};
use crate::wire::UNIT;
use crate::{Credits, RingSize};

/// The posting half.
#[derive(Debug)]
pub struct RecvProducer {
    wqes: RecvWqes<0>,
    credits: Credits,
    record: DoorbellRecord,
    consumer: NonNull<RecvConsumer>,
}

// SAFETY: the pointers in `wqes` are to DMA memory, bound to no thread and
// written by this half only, and to atomics; the consumer is `Sync`. Both
// outlive this half, as promised to `new`.
unsafe impl Send for RecvProducer {}

/// The completing half, for the thread that polls the completion queue of the
/// receives. The producer reads its counter and writes its `wr_id`s.
#[derive(Debug)]
pub struct RecvConsumer {
    retired: AtomicU32,
    size: RingSize,
    wr_ids: Box<[AtomicU64]>,
    buf: NonNull<u8>,
    stride: usize,
    /// Written by the producer.
    record: DoorbellRecord,
}

// SAFETY: `buf` is DMA memory, bound to no thread, and only read from here.
unsafe impl Send for RecvConsumer {}
// SAFETY: as above; the other fields that change are atomics.
unsafe impl Sync for RecvConsumer {}

/// The `wr_id`s of a receive queue, in a form that fits registers.
#[derive(Clone, Copy, Debug)]
pub struct WrIds<'a> {
    size: RingSize,
    wr_ids: &'a [AtomicU64],
}

impl WrIds<'_> {
    /// Returns the `wr_id` of the receive that a completion names.
    #[inline(always)]
    pub fn at(self, wqe_counter: u16) -> u64 {
        let index = self.size.index(u32::from(wqe_counter));
        // SAFETY: an index of the ring, which has as many `wr_id`s as WQEs.
        let wr_id = unsafe { self.wr_ids.get_unchecked(index) };
        wr_id.load(Ordering::Relaxed)
    }
}

impl RecvConsumer {
    /// Returns the completing half of the ring that `layout` describes.
    ///
    /// # Errors
    /// If the layout contradicts itself.
    ///
    /// # Safety
    /// The memory that the layout names is valid, aligned as the device
    /// demands, and used by nothing but the two halves and the device, for as long
    /// as either half lives.
    pub unsafe fn new(layout: &RecvLayout) -> Result<Self, LayoutError> {
        let size = RingSize::new(layout.wqe_count)
            .filter(|size| size.count() <= 1 << 15)
            .ok_or(LayoutError(
                "the receive queue's WQE count is not a power of two up to 2^15",
            ))?;
        if !layout.stride.is_power_of_two() || (layout.stride as usize) < UNIT {
            return Err(LayoutError(
                "the receive stride is not a power of two of at least 16",
            ));
        }
        Ok(Self {
            retired: AtomicU32::new(0),
            size,
            wr_ids: (0..size.count()).map(|_| AtomicU64::new(0)).collect(),
            buf: layout.buf,
            stride: layout.stride as usize,
            // SAFETY: the layout's record, valid as the caller promises.
            record: unsafe { DoorbellRecord::new(layout.dbrec) },
        })
    }
}

impl RecvProducer {
    /// Returns the posting half of the ring whose other half is `consumer`. Closed
    /// for posts until [`Self::open`].
    ///
    /// # Safety
    /// `layout` is the one that `consumer` was made from, and `consumer` stays
    /// where it is for as long as this half lives. There is no other producer.
    pub unsafe fn new(layout: &RecvLayout, consumer: &RecvConsumer) -> Self {
        let RecvConsumer { size, stride, .. } = *consumer;
        Self {
            wqes: RecvWqes::new(layout.buf, stride, size, &consumer.wr_ids),
            credits: Credits::new(size.count(), consumer.retired.load(Ordering::Acquire)),
            // SAFETY: the layout's record, valid as promised to the consumer.
            record: unsafe { DoorbellRecord::new(layout.dbrec) },
            consumer: NonNull::from(consumer),
        }
    }

    /// Returns the posting half of no ring, for a queue pair without a receive
    /// queue of its own. Every post fails with [`PostError::NotReady`].
    ///
    /// # Safety
    /// [`Self::open`], [`Self::outstanding`] and [`PostReceives::publish`] are never
    /// called on it.
    pub unsafe fn none() -> Self {
        Self {
            wqes: RecvWqes::none(),
            credits: Credits::new(0, 0),
            // SAFETY: a record that is never written: nothing is ever posted.
            record: unsafe { DoorbellRecord::new(NonNull::dangling()) },
            consumer: NonNull::dangling(),
        }
    }

    #[inline(always)]
    fn retired(&self) -> u32 {
        // SAFETY: the consumer outlives this half, as promised to `new`.
        let consumer = unsafe { self.consumer.as_ref() };
        // Acquire: the poller has read the `wr_id`s and WQEs that come back.
        consumer.retired.load(Ordering::Acquire)
    }

    /// Allows posts, once the queue pair has left RESET.
    pub fn open(&mut self) {
        self.credits.open(self.retired());
    }

    /// Refuses posts from now on.
    #[cfg(test)]
    pub fn close(&mut self) {
        self.credits.close();
    }

    /// Returns the number of receives that were posted and not retired.
    pub fn outstanding(&self) -> u32 {
        self.credits.posted().wrapping_sub(self.retired())
    }

    /// Returns how many receives may be outstanding.
    pub fn capacity(&self) -> u32 {
        self.credits.capacity()
    }

    /// Limits the number of outstanding receives to `most`, but not below the
    /// number that is outstanding.
    pub fn limit(&mut self, most: u32) {
        let capacity = self.wqes.size.count().min(most);
        self.credits.set_capacity(capacity);
    }

    /// Returns whether there is room for one more although the credits are exhausted. A queue
    /// that is kept full calls this for each request, so it is inlined.
    #[inline(always)]
    fn finds_room(&mut self) -> bool {
        self.credits.is_open() && {
            let retired = self.retired();
            self.credits.refresh(retired)
        }
    }
}

impl PostReceives for RecvProducer {
    #[inline(always)]
    unsafe fn try_post(&mut self, request: &RecvRequest<'_>) -> bool {
        let [segment] = request.segments else {
            return false;
        };
        if self.credits.exhausted() && !self.finds_room() {
            return false;
        }
        let index = self.wqes.size.index(self.credits.posted());
        // SAFETY: the WQE is free: there is room.
        if !unsafe { self.wqes.write_one(index, request.wr_id, segment) } {
            return false;
        }
        self.credits.take(1);
        self.publish();
        true
    }

    #[inline(always)]
    unsafe fn try_write_run<'a, T, S: Borrow<Segment>>(
        &mut self,
        list: &'a [T],
        receive: impl Fn(&'a T) -> Option<(S, u64)>,
    ) -> usize {
        if self.credits.exhausted() && !self.finds_room() {
            return 0;
        }
        let wqes = self.wqes;
        let start = self.credits.posted();
        let mut posted = start;
        for item in &list[..list.len().min(self.credits.room())] {
            let Some((segment, wr_id)) = receive(item) else {
                break;
            };
            let index = wqes.size.index(posted);
            // SAFETY: the WQE is free: there is room.
            if !unsafe { wqes.write_one(index, wr_id, segment.borrow()) } {
                break;
            }
            posted = posted.wrapping_add(1);
        }
        let written = posted.wrapping_sub(start);
        self.credits.take(written);
        written as usize
    }

    #[inline(never)]
    unsafe fn write(&mut self, wr_id: u64, segments: &[Segment]) -> Result<(), PostError> {
        if self.credits.exhausted() && !self.finds_room() {
            return Err(if self.credits.is_open() {
                PostError::QueueFull
            } else {
                PostError::NotReady
            });
        }
        let index = self.wqes.size.index(self.credits.posted());
        // SAFETY: the WQE is free: there is room.
        unsafe { self.wqes.write(index, wr_id, segments) }?;
        self.credits.take(1);
        Ok(())
    }

    #[inline(always)]
    fn publish(&mut self) {
        barrier::before_record();
        self.record.set(self.credits.posted() & 0xffff);
    }
}

impl RecvConsumer {
    /// Returns the `wr_id`s, for a loop over several completions.
    #[inline(always)]
    pub fn wr_ids(&self) -> WrIds<'_> {
        WrIds {
            size: self.size,
            wr_ids: &self.wr_ids,
        }
    }

    /// Returns the `wr_id` of the receive that a completion names. For a
    /// counter of no posted receive, which only a faulty device writes, returns
    /// another `wr_id` of the ring.
    #[inline(always)]
    pub fn wr_id(&self, wqe_counter: u16) -> u64 {
        let index = self.size.index(u32::from(wqe_counter));
        // SAFETY: as in `WrIds::at`.
        let wr_id = unsafe { self.wr_ids.get_unchecked(index) };
        wr_id.load(Ordering::Relaxed)
    }

    /// Returns `count` completed receives to the producer, which may overwrite
    /// their WQEs from then on.
    ///
    /// # Safety
    /// The device is done with that many receives that were not retired before: the
    /// caller has read their completions. One thread at a time calls this.
    #[inline(always)]
    pub unsafe fn retire(&self, count: u32) {
        let retired = self.retired.load(Ordering::Relaxed).wrapping_add(count);
        // Release: the `wr_id`s, and the WQEs if they were looked at, have been
        // read.
        self.retired.store(retired, Ordering::Release);
    }

    /// Returns the number of receives that were posted and not retired. Any thread
    /// may call it; the number is exact if no thread posts or polls meanwhile.
    #[inline]
    pub fn outstanding(&self) -> u32 {
        let retired = self.retired.load(Ordering::Relaxed);
        // The record has 16 bits of the count of posts, the ring at most 2^15.
        self.record.get().wrapping_sub(retired) & 0xffff
    }

    /// Returns the first segment of the receive that a completion names.
    #[inline(always)]
    pub fn first_segment(&self, wqe_counter: u16) -> FirstSegment {
        let index = self.size.index(u32::from(wqe_counter));
        // SAFETY: an index of the ring, whose WQEs begin with a segment.
        unsafe { FirstSegment::read(self.buf.add(index * self.stride)) }
    }

    /// Collects the segments that `length` bytes go to, of the receive that a
    /// completion names.
    pub fn units(&self, wqe_counter: u16, length: u32, units: &mut Units) {
        let index = self.size.index(u32::from(wqe_counter));
        // SAFETY: an index of the ring.
        let wqe = unsafe { self.buf.add(index * self.stride) };
        units.collect(
            length,
            (0..self.stride / UNIT).map(|unit| {
                // SAFETY: a unit of the WQE.
                unsafe { read_unit(wqe.add(unit * UNIT)) }
            }),
        );
    }
}

#[cfg(test)]
mod tests;
