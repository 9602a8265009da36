//! The shared receive queue: WQEs that are linked in ring memory.
//!
//! Each WQE begins with the index of the next one; the device follows these
//! links, from the first WQE ever posted on. The producer chooses the order of
//! the links, and the order affects speed: a NIC fetches several WQEs at once
//! if they are adjacent. So the producer posts adjacent WQEs as long as it can:
//!
//! - if the next WQE in the ring is free, it is posted next;
//! - otherwise the nearest free WQE after it is posted next; the search wraps
//!   around the end of the ring.
//!
//! libmlx5 posts in the same order since v48, for the same sequence of posts
//! and completions. One WQE, the next to be posted, is always kept free, since
//! the link to it must be written first.
//!
//! The producer writes the link of a WQE when the WQE is posted. libmlx5 links
//! a whole run when it takes the run, which for a long run is many stores in
//! one post. The device reads the same links in both cases, because it reads no
//! WQE that is not posted.
//!
//! The pollers release completed WQEs in runs. A completion whose WQE follows
//! the last one in the ring, as most do, extends the latest run by one; any
//! other begins a run. So one load gives the producer all WQEs that were
//! released in the order of the ring. WQEs that were released in another order
//! are kept in a set whose search takes constant time.
//!
//! Unlike in a receive queue, segments of length 0 are written (libmlx5
//! `mlx5_post_srq_recv`).
//!
//! Usually all queue pairs of the queue report to one completion queue, so there
//! is one poller. If there are several, they take a lock
//! ([`SharedRecvConsumer::allow_several_pollers`]).
//!
//! Decision: `docs/decisions/006-srq-posts-runs-of-neighbours.md`

use core::borrow::Borrow;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::RingSize;
use crate::free_set::FreeSet;
use crate::layout::{LayoutError, SharedRecvLayout};
use crate::mmio::{DmaCell, DoorbellRecord, barrier};
use crate::recv_wqe::{PostReceives, RecvWqes};
use crate::request::{PostError, RecvRequest, Segment};
use crate::scatter::{FirstSegment, Units, read_unit};
use crate::sync::BiasedLock;
use crate::wire::{Be16, SrqNextSegment, UNIT};

mod latest;

use latest::Latest;

/// The posting half.
#[derive(Debug)]
pub struct SharedRecvProducer {
    wqes: RecvWqes<1>,
    /// The next WQE to use, an index of the ring.
    head: u32,
    /// The last of the adjacent WQEs from `head` on that are known to be free.
    tail: u32,
    /// The number of the pollers' run that continues after `tail`; differs from
    /// `reading` if there is none.
    run: u32,
    /// The pollers' run that is read next, and its first WQE that was not read.
    /// While the run continues after `tail`, that WQE is the one after `tail`.
    reading: u32,
    unread: u32,
    /// The number of posts; the device reads 16 bits of it.
    posted: u32,
    record: DoorbellRecord,
    consumer: NonNull<SharedRecvConsumer>,
    /// Released WQEs outside the range from `head` to `tail`.
    free: FreeSet,
}

// SAFETY: the pointers in `wqes` are to DMA memory, bound to no thread, of which
// this half writes free WQEs only, and to atomics; the consumer is `Sync`. Both
// outlive this half, as promised to `new`.
unsafe impl Send for SharedRecvProducer {}

/// The completing half, used by the pollers.
#[derive(Debug)]
pub struct SharedRecvConsumer {
    /// The latest run and its last WQE: see [`Latest`].
    latest: AtomicU64,
    /// The number of WQEs that were released so far.
    returned: AtomicU32,
    /// For each run, by its masked number: the last WQE of the run before it,
    /// and its own first WQE.
    run_bounds: Box<[AtomicU32]>,
    /// Written by the producer.
    record: DoorbellRecord,
    lock: BiasedLock,
    size: RingSize,
    wr_ids: Box<[AtomicU64]>,
    buf: NonNull<u8>,
    stride: usize,
}

// SAFETY: `buf` is DMA memory, bound to no thread, and only read from here.
unsafe impl Send for SharedRecvConsumer {}
// SAFETY: as above; the other fields that change are atomics.
unsafe impl Sync for SharedRecvConsumer {}

impl SharedRecvProducer {
    /// Returns the posting half of the ring whose other half is `consumer`.
    ///
    /// # Safety
    /// `layout` is the one that `consumer` was made from, and `consumer` stays
    /// where it is for as long as this half lives. There is no other producer.
    pub unsafe fn new(layout: &SharedRecvLayout, consumer: &SharedRecvConsumer) -> Self {
        let SharedRecvConsumer { size, stride, .. } = *consumer;
        Self {
            wqes: RecvWqes::new(layout.buf, stride, size, &consumer.wr_ids),
            head: u32::from(layout.head),
            tail: u32::from(layout.tail),
            run: 0,
            reading: 0,
            unread: 0,
            posted: 0,
            // SAFETY: the layout's record, valid as promised to the consumer.
            record: unsafe { DoorbellRecord::new(layout.dbrec) },
            consumer: NonNull::from(consumer),
            free: FreeSet::new(size),
        }
    }

    /// Returns how many receives may be outstanding.
    pub fn capacity(&self) -> u32 {
        self.wqes.size.count() - 1
    }

    /// Returns how many segments one receive may have.
    pub fn max_segments(&self) -> usize {
        self.wqes.max_segments
    }

    /// Writes a request, of no more segments than fit, to the head, and makes
    /// `next` the head.
    #[inline(always)]
    fn write_to_head(
        &mut self,
        next: u32,
        wr_id: u64,
        segments: &[Segment],
    ) -> Result<(), PostError> {
        // SAFETY: the head is free.
        unsafe { self.wqes.write(self.head as usize, wr_id, segments) }?;
        self.wqes.link(self.head, next);
        self.head = next;
        self.posted = self.posted.wrapping_add(1);
        Ok(())
    }

    /// Adds the WQEs that were released in the order of the ring to those from
    /// `head` to `tail`. Returns whether there are any. A queue that is kept
    /// full needs this for each request, so this function is inlined.
    #[inline(always)]
    fn extend(&mut self) -> bool {
        let latest = self.latest();
        if latest.run() != self.run {
            return false;
        }
        self.tail = latest.last();
        self.tail != self.head
    }

    /// Moves all released WQEs to the free set. `next` is the WQE after the
    /// tail.
    fn read_runs(&mut self, next: u32) {
        // SAFETY: the consumer outlives this half, as promised to `new`.
        let consumer = unsafe { self.consumer.as_ref() };
        let size = self.wqes.size;
        if self.run == self.reading {
            self.unread = next;
        }
        let latest = self.latest();
        while self.reading != latest.run() {
            self.reading = self.reading.wrapping_add(1);
            let bounds = &consumer.run_bounds[size.index(self.reading)];
            // Written before `latest`. The entry is reused after as many runs
            // as the ring has WQEs; fewer than that are released and not read.
            let bounds = bounds.load(Ordering::Relaxed);
            let (last, first) = (bounds >> 16, bounds & 0xffff);
            self.free.insert_up_to(size, self.unread, last);
            self.unread = first;
        }
        self.free.insert_up_to(size, self.unread, latest.last());
        self.unread = self.wqes.neighbour(latest.last());
        self.join();
    }

    /// Determines whether the run that is read next continues after the tail.
    fn join(&mut self) {
        self.run = if self.unread == self.wqes.neighbour(self.tail) {
            self.reading
        } else {
            // Older: it never becomes the latest again.
            self.reading.wrapping_sub(1)
        };
    }

    #[inline(always)]
    fn latest(&self) -> Latest {
        // SAFETY: the consumer outlives this half, as promised to `new`.
        let consumer = unsafe { self.consumer.as_ref() };
        // Acquire: the bounds of the runs before it, and that the pollers have read the
        // `wr_id`s and WQEs that come back.
        Latest::from_bits(consumer.latest.load(Ordering::Acquire))
    }
}

impl PostReceives for SharedRecvProducer {
    #[inline(always)]
    unsafe fn try_post(&mut self, request: &RecvRequest<'_>) -> bool {
        if self.head == self.tail && !self.extend() {
            return false;
        }
        let [segment] = request.segments else {
            return false;
        };
        let head = self.head;
        let next = self.wqes.neighbour(head);
        // SAFETY: the head is free.
        if !unsafe { self.wqes.write_one(head as usize, request.wr_id, segment) } {
            return false;
        }
        self.wqes.link(head, next);
        self.head = next;
        self.posted = self.posted.wrapping_add(1);
        self.publish();
        true
    }

    #[inline(always)]
    unsafe fn try_write_run<'a, T, S: Borrow<Segment>>(
        &mut self,
        list: &'a [T],
        receive: impl Fn(&'a T) -> Option<(S, u64)>,
    ) -> usize {
        if self.head == self.tail {
            self.extend();
        }
        let wqes = self.wqes;
        // Counted once, so that a turn of the loop needs neither the tail nor a counter.
        let room = wqes.size.index(self.tail.wrapping_sub(self.head));
        let start = self.head;
        let mut head = start;
        for item in &list[..list.len().min(room)] {
            let Some((segment, wr_id)) = receive(item) else {
                break;
            };
            let next = wqes.neighbour(head);
            // SAFETY: the head is free.
            if !unsafe { wqes.write_one(head as usize, wr_id, segment.borrow()) } {
                break;
            }
            wqes.link(head, next);
            head = next;
        }
        let written = wqes.size.index(head.wrapping_sub(start));
        self.head = head;
        self.posted = self.posted.wrapping_add(written as u32);
        written
    }

    #[inline(never)]
    unsafe fn write(&mut self, wr_id: u64, segments: &[Segment]) -> Result<(), PostError> {
        if segments.len() > self.wqes.max_segments {
            return Err(PostError::TooManySegments);
        }
        if self.head != self.tail || self.extend() {
            let next = self.wqes.neighbour(self.head);
            return self.write_to_head(next, wr_id, segments);
        }
        let next = self.wqes.neighbour(self.tail);
        self.read_runs(next);
        let run = self.free.nearest(next).ok_or(PostError::QueueFull)?;
        self.write_to_head(run.first, wr_id, segments)?;
        self.free.remove(run);
        self.tail = run.last;
        self.join();
        Ok(())
    }

    #[inline(always)]
    fn publish(&mut self) {
        barrier::before_record();
        self.record.set(self.posted & 0xffff);
    }
}

impl RecvWqes<1> {
    /// Returns the index of the next WQE in the ring.
    #[inline(always)]
    fn neighbour(&self, head: u32) -> u32 {
        self.size.index(head.wrapping_add(1)) as u32
    }

    /// Links a WQE to the one that is posted next.
    #[inline(always)]
    fn link(&self, head: u32, next: u32) {
        // SAFETY: inside the header of a WQE of the ring.
        let link = unsafe { self.at(head as usize).add(SrqNextSegment::NEXT_OFFSET) };
        // SAFETY: two aligned bytes of ring memory.
        unsafe { DmaCell::<u16>::new(link.cast()) }.write(Be16::new(next as u16).to_bits());
    }
}

/// Completed WQEs that are released together.
#[derive(Debug)]
pub struct Returns<'a> {
    wr_ids: &'a [AtomicU64],
    size: RingSize,
    run_bounds: &'a [AtomicU32],
    latest: Latest,
}

impl Returns<'_> {
    /// Releases the WQE at `index`, as a completion names it, and returns its
    /// `wr_id`.
    ///
    /// # Safety
    /// The device is done with that WQE, and it was not released before: the
    /// caller has read its completion.
    #[inline(always)]
    pub unsafe fn take(&mut self, index: u16) -> u64 {
        let index = self.size.index(u32::from(index));
        self.latest = self.latest.after(self.size, self.run_bounds, index as u32);
        // SAFETY: masked to the ring, which has as many `wr_id`s as WQEs.
        unsafe { self.wr_ids.get_unchecked(index) }.load(Ordering::Relaxed)
    }
}

impl SharedRecvConsumer {
    /// Returns the completing half of the ring that `layout` describes.
    ///
    /// # Errors
    /// If the layout contradicts itself.
    ///
    /// # Safety
    /// The memory that the layout names is valid, aligned as the device
    /// demands, free from head to tail, and used by nothing but the two halves and
    /// the device, for as long as either half lives. The device takes the head
    /// first.
    pub unsafe fn new(layout: &SharedRecvLayout) -> Result<Self, LayoutError> {
        if layout.head >= layout.tail {
            return Err(LayoutError(
                "the shared receive queue's free list is empty or reversed",
            ));
        }
        let size = RingSize::new(u32::from(layout.tail) + 1).ok_or(LayoutError(
            "the shared receive queue's WQE count is not a power of two",
        ))?;
        if !layout.stride.is_power_of_two() || (layout.stride as usize) < 2 * UNIT {
            return Err(LayoutError(
                "the shared receive stride is not a power of two of at least 32",
            ));
        }
        Ok(Self {
            // Run 0, which continues after the tail.
            latest: AtomicU64::new(Latest::new(0, u32::from(layout.tail)).to_bits()),
            returned: AtomicU32::new(0),
            run_bounds: (0..size.count()).map(|_| AtomicU32::new(0)).collect(),
            // SAFETY: the layout's record, valid as the caller promises.
            record: unsafe { DoorbellRecord::new(layout.dbrec) },
            lock: BiasedLock::new(),
            size,
            wr_ids: (0..size.count()).map(|_| AtomicU64::new(0)).collect(),
            buf: layout.buf,
            stride: layout.stride as usize,
        })
    }

    /// Allows several threads to return WQEs from now on. Call it before the
    /// second one can see a completion of this queue.
    pub fn allow_several_pollers(&self) {
        self.lock.revoke_bias();
    }

    /// Returns the `wr_id` of the WQE at `index`, as a completion names it.
    #[inline(always)]
    pub fn wr_id(&self, index: u16) -> u64 {
        // SAFETY: masked to the ring, which has as many `wr_id`s as WQEs.
        let wr_id = unsafe { self.wr_ids.get_unchecked(self.size.index(u32::from(index))) };
        wr_id.load(Ordering::Relaxed)
    }

    /// Releases a completed WQE to the producer, which may overwrite it from
    /// then on.
    ///
    /// # Safety
    /// The device is done with the WQE, and it was not released before: the
    /// caller has read its completion. One thread at a time releases WQEs,
    /// unless [`Self::allow_several_pollers`] has returned.
    #[inline]
    pub unsafe fn free(&self, index: u16) {
        let index = self.size.index(u32::from(index)) as u32;
        self.lock.with(|| {
            let latest = Latest::from_bits(self.latest.load(Ordering::Relaxed));
            self.put_back(latest.after(self.size, &self.run_bounds, index), 1);
        });
    }

    /// Releases a completed WQE and returns its `wr_id`, if the WQE follows the
    /// one that was released last and there is one poller. Otherwise returns
    /// `None` and does nothing; the caller then uses [`Self::wr_id`] and
    /// [`Self::free`]. Makes no outlined call, and needs few registers.
    ///
    /// # Safety
    /// As for [`Self::free`].
    #[inline(always)]
    pub unsafe fn take_next(&self, index: u16) -> Option<u64> {
        let wr_id = self.wr_id(index);
        let index = self.size.index(u32::from(index)) as u32;
        let taken = self.lock.try_biased(|| {
            let latest = Latest::from_bits(self.latest.load(Ordering::Relaxed));
            self.put_back(latest.followed_by(self.size, index)?, 1);
            Some(wr_id)
        });
        taken.flatten()
    }

    /// Calls `take`, which collects several WQEs and returns their number, then
    /// releases them to the producer. Returns `None`, without the call, if
    /// there are several pollers.
    ///
    /// # Safety
    /// One thread at a time releases WQEs, unless
    /// [`Self::allow_several_pollers`] has returned.
    #[inline(always)]
    pub unsafe fn return_alone(
        &self,
        take: impl FnOnce(&mut Returns<'_>) -> usize,
    ) -> Option<usize> {
        self.lock.try_biased(|| {
            let mut returns = Returns {
                wr_ids: &self.wr_ids,
                size: self.size,
                run_bounds: &self.run_bounds,
                latest: Latest::from_bits(self.latest.load(Ordering::Relaxed)),
            };
            let taken = take(&mut returns);
            self.put_back(returns.latest, taken as u32);
            taken
        })
    }

    /// Publishes `count` more released WQEs to the producer; the latest run is
    /// then `latest`. Called under the lock.
    #[inline(always)]
    fn put_back(&self, latest: Latest, count: u32) {
        // Release: the bounds are written, the `wr_id`s and WQEs are read.
        self.latest.store(latest.to_bits(), Ordering::Release);
        // A separate counter: incrementing it is one instruction.
        let returned = self.returned.load(Ordering::Relaxed);
        self.returned
            .store(returned.wrapping_add(count), Ordering::Relaxed);
    }

    /// Returns the number of receives that were posted and not released. Any
    /// thread may call it; the number is exact if no thread posts or polls
    /// meanwhile.
    #[inline]
    pub fn outstanding(&self) -> u32 {
        let returned = self.returned.load(Ordering::Relaxed);
        // The record has 16 bits of the count of posts; fewer are outstanding.
        self.record.get().wrapping_sub(returned) & 0xffff
    }

    /// Returns the first segment of the receive at `index`.
    #[inline(always)]
    pub fn first_segment(&self, index: u16) -> FirstSegment {
        let index = self.size.index(u32::from(index));
        // SAFETY: an index of the ring, whose WQEs have a segment after their header.
        unsafe { FirstSegment::read(self.buf.add(index * self.stride + UNIT)) }
    }

    /// Collects the segments that `length` bytes go to, of the receive at `index`.
    pub fn units(&self, index: u16, length: u32, units: &mut Units) {
        // SAFETY: an index of the ring.
        let wqe = unsafe {
            self.buf
                .add(self.size.index(u32::from(index)) * self.stride)
        };
        units.collect(
            length,
            (1..self.stride / UNIT).map(|unit| {
                // SAFETY: a unit of the WQE.
                unsafe { read_unit(wqe.add(unit * UNIT)) }
            }),
        );
    }
}

#[cfg(test)]
mod tests;
