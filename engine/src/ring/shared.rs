//! The shared receive queue: a list of free WQEs, linked in ring memory.
//!
//! Each WQE begins with the index of the next free one; the device follows the
//! same links, from the first WQE ever posted on. So the order is fixed: the
//! producer takes from the head, and a completed WQE is appended at the tail,
//! as in libmlx5 v44. The last element stays in the list, because its link is
//! not known yet. Unlike a receive queue's, segments of length 0 are written
//! (libmlx5 `mlx5_post_srq_recv`).
//!
//! The tail belongs to the poller. Usually all queue pairs of the queue report
//! to one completion queue, so there is one; if there are several, they take a
//! [`BiasedLock`].

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::layout::SharedRecvLayout;
use super::receive::{data_words, write_unit};
use super::scatter::{Units, read_unit};
use super::{LayoutError, RingSize};
use crate::mmio::{BiasedLock, DmaCell, DoorbellRecord, barrier};
use crate::request::{ListError, PostError, RecvRequest, Segment};
use crate::wire::{Be16, Be32, DataSegment, InlineHeader, SrqNextSegment, UNIT};

/// The posting half.
#[derive(Debug)]
pub struct SharedRecvProducer {
    wqes: Wqes,
    /// The next WQE to use, an index of the ring.
    head: u32,
    /// The end of the list, as far as the producer knows.
    known_tail: u32,
    /// Posts so far; the device reads 16 bits of it.
    posted: u32,
    record: DoorbellRecord,
    consumer: NonNull<SharedRecvConsumer>,
}

// SAFETY: the pointers in `wqes` are to DMA memory, bound to no thread, of which
// this half writes only the WQEs between head and tail, and to atomics; the
// consumer is `Sync`. Both outlive this half, as promised to `new`.
unsafe impl Send for SharedRecvProducer {}

/// Where the producer writes; copied to registers for the length of a list.
#[derive(Clone, Copy, Debug)]
struct Wqes {
    buf: NonNull<u8>,
    size: RingSize,
    stride: usize,
    max_segments: usize,
    /// The consumer's cookies, by index: kept here so that a post does not
    /// touch the cache line that the pollers write.
    cookies: NonNull<AtomicU64>,
}

/// The completing half, used by the pollers.
#[derive(Debug)]
pub struct SharedRecvConsumer {
    tail: AtomicU32,
    /// How many WQEs were ever returned to the list.
    returned: AtomicU32,
    /// Written by the producer.
    record: DoorbellRecord,
    lock: BiasedLock,
    size: RingSize,
    cookies: Box<[AtomicU64]>,
    buf: NonNull<u8>,
    stride: usize,
}

// SAFETY: `buf` is DMA memory, bound to no thread; the links are written under
// `lock`.
unsafe impl Send for SharedRecvConsumer {}
// SAFETY: as above; the other fields that change are atomics.
unsafe impl Sync for SharedRecvConsumer {}

/// The link of the WQE at `index`.
///
/// # Safety
/// `index` is in the ring that starts at `buf`.
#[inline(always)]
unsafe fn link(buf: NonNull<u8>, stride: usize, index: usize) -> DmaCell<u16> {
    // SAFETY: inside the first segment of a WQE of the ring.
    let at = unsafe { buf.add(index * stride + SrqNextSegment::NEXT_OFFSET) };
    // SAFETY: two aligned bytes of ring memory, which outlives both halves.
    unsafe { DmaCell::new(at.cast()) }
}

impl SharedRecvProducer {
    /// The posting half of the ring whose other half is `consumer`.
    ///
    /// # Safety
    /// `layout` is the one that `consumer` was made from, and `consumer` stays
    /// where it is for as long as this half lives. There is no other producer.
    pub unsafe fn new(layout: &SharedRecvLayout, consumer: &SharedRecvConsumer) -> Self {
        let SharedRecvConsumer { size, stride, .. } = *consumer;
        Self {
            wqes: Wqes {
                buf: layout.buf,
                size,
                stride,
                max_segments: stride / UNIT - 1,
                cookies: NonNull::from(&*consumer.cookies).cast(),
            },
            head: u32::from(layout.head),
            known_tail: u32::from(layout.tail),
            posted: 0,
            // SAFETY: the layout's record, valid as promised to the consumer.
            record: unsafe { DoorbellRecord::new(layout.dbrec) },
            consumer: NonNull::from(consumer),
        }
    }

    /// The most receives that may be outstanding.
    pub fn capacity(&self) -> u32 {
        self.wqes.size.count() - 1
    }

    /// The most segments of one receive.
    pub fn max_segments(&self) -> usize {
        self.wqes.max_segments
    }

    /// Posts one receive.
    ///
    /// # Errors
    /// [`PostError`]; nothing is posted then.
    ///
    /// # Safety
    /// The memory of the segments is writable and left alone until the receive
    /// completes.
    #[inline]
    pub unsafe fn post(&mut self, request: &RecvRequest<'_>) -> Result<(), PostError> {
        // SAFETY: passed on to the caller.
        if !unsafe { self.post_plain(request) } {
            self.post_any(request.cookie, request.segments)?;
        }
        Ok(())
    }

    /// [`Self::post`] for every request. Takes its parts, so that a request
    /// that is posted without this need not lie in memory.
    #[inline(never)]
    fn post_any(&mut self, cookie: u64, segments: &[Segment]) -> Result<(), PostError> {
        self.write_any(cookie, segments)?;
        self.publish();
        Ok(())
    }

    /// [`Self::post`] as far as it goes without a call out of line: whether it
    /// is posted.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    pub unsafe fn post_plain(&mut self, request: &RecvRequest<'_>) -> bool {
        if !self.has_room() {
            return false;
        }
        // SAFETY: the head is free: there is room.
        let Some(next) = (unsafe { self.wqes.write_plain(self.head, request) }) else {
            return false;
        };
        self.head = next;
        self.posted = self.posted.wrapping_add(1);
        self.publish();
        true
    }

    /// Posts several receives with one store to the doorbell record.
    ///
    /// # Errors
    /// [`ListError`]; the receives before the bad one are posted.
    ///
    /// # Safety
    /// As for [`Self::post`], for every request.
    #[inline]
    pub unsafe fn post_list(&mut self, requests: &[RecvRequest<'_>]) -> Result<(), ListError> {
        let mut rest = requests;
        let mut result = Ok(());
        while !rest.is_empty() {
            let plain = self.write_plain_run(rest);
            rest = &rest[plain..];
            let Some((request, behind)) = rest.split_first() else {
                break;
            };
            if let Err(error) = self.write_any(request.cookie, request.segments) {
                result = Err(ListError {
                    posted: requests.len() - rest.len(),
                    error,
                });
                break;
            }
            rest = behind;
        }
        if rest.len() < requests.len() {
            self.publish();
        }
        result
    }

    /// Writes requests up to the first that takes a closer look. Answers how many.
    #[inline(always)]
    fn write_plain_run(&mut self, requests: &[RecvRequest<'_>]) -> usize {
        let wqes = self.wqes;
        let tail = self.known_tail;
        let mut head = self.head;
        let mut written = 0;
        for request in requests {
            if head == tail {
                break;
            }
            // SAFETY: the head is free: it is not the tail.
            let Some(next) = (unsafe { wqes.write_plain(head, request) }) else {
                break;
            };
            head = next;
            written += 1;
        }
        self.head = head;
        self.posted = self.posted.wrapping_add(written as u32);
        written
    }

    /// Writes any request, as far as there is room.
    #[inline(never)]
    fn write_any(&mut self, cookie: u64, segments: &[Segment]) -> Result<(), PostError> {
        if segments.len() > self.wqes.max_segments {
            return Err(PostError::TooManySegments);
        }
        if !self.has_room() {
            return Err(PostError::QueueFull);
        }
        // SAFETY: the head is free: there is room.
        unsafe { self.wqes.write(self.head, segments) }?;
        self.head = self.wqes.set_cookie(self.head, cookie);
        self.posted = self.posted.wrapping_add(1);
        Ok(())
    }

    /// Whether the head is free. A queue that is kept full takes a look at what
    /// came back for each request, so that is done in line.
    #[inline(always)]
    fn has_room(&mut self) -> bool {
        if self.head == self.known_tail {
            // SAFETY: the consumer outlives this half, as promised to `new`.
            let consumer = unsafe { self.consumer.as_ref() };
            // Acquire: the links up to the tail, and that the pollers have read
            // the cookies and WQEs that come back.
            self.known_tail = consumer.tail.load(Ordering::Acquire);
        }
        self.head != self.known_tail
    }

    #[inline(always)]
    fn publish(&mut self) {
        barrier::before_record();
        self.record.set(self.posted & 0xffff);
    }
}

impl Wqes {
    /// Where the first segment of a WQE is, after the link.
    #[inline(always)]
    fn segments(&self, head: u32) -> NonNull<u8> {
        // SAFETY: the head is below the WQE count, and every WQE has room for
        // a segment after the link.
        unsafe { self.buf.add(head as usize * self.stride + UNIT) }
    }

    /// Notes the cookie of a WQE. Answers the one after it on the list.
    #[inline(always)]
    fn set_cookie(&self, head: u32, cookie: u64) -> u32 {
        let index = head as usize;
        // SAFETY: the index is below the WQE count, which is the number of
        // cookies, and the consumer that owns them outlives the producer.
        let place = unsafe { self.cookies.add(index).as_ref() };
        place.store(cookie, Ordering::Relaxed);
        // SAFETY: the index is in the ring.
        let first = unsafe { self.buf.add(index * self.stride) };
        // SAFETY: the first word of a WQE of the ring.
        let first = unsafe { DmaCell::<u32>::new(first.cast()) }.read();
        // The link is the lower half of that word. The mask cuts off the upper
        // one, and keeps a corrupted link inside the ring.
        const _: () = assert!(SrqNextSegment::NEXT_OFFSET == 2);
        self.size.index(Be32::from_bits(first).get()) as u32
    }

    /// Writes the WQE at `head` if the request has one segment: most receives.
    /// Answers the one after it on the list, or `None` if nothing is written.
    /// Calls nothing out of line.
    ///
    /// # Safety
    /// The WQE is on the free list, and not its last: the device does not read
    /// its segments before the doorbell record counts it.
    #[inline(always)]
    unsafe fn write_plain(&self, head: u32, request: &RecvRequest<'_>) -> Option<u32> {
        let [segment] = request.segments else {
            return None;
        };
        if segment.length & InlineHeader::MARK != 0 {
            return None;
        }
        let first = self.segments(head);
        // SAFETY: every WQE has room for one segment.
        unsafe { write_unit(first, data_words(segment)) };
        if self.max_segments > 1 {
            // SAFETY: and this one for a second.
            unsafe { write_unit(first.add(UNIT), DataSegment::TERMINATOR.to_words()) };
        }
        Some(self.set_cookie(head, request.cookie))
    }

    /// Writes the WQE at `head`, with no more segments than fit.
    ///
    /// # Safety
    /// As for [`Self::write_plain`].
    unsafe fn write(&self, head: u32, segments: &[Segment]) -> Result<(), PostError> {
        let first = self.segments(head);
        for (at, segment) in segments.iter().take(self.max_segments).enumerate() {
            if segment.length & InlineHeader::MARK != 0 {
                return Err(PostError::MessageTooLong);
            }
            // SAFETY: at most `max_segments` units are written.
            unsafe { write_unit(first.add(at * UNIT), data_words(segment)) };
        }
        if segments.len() < self.max_segments {
            // SAFETY: a unit of the WQE.
            unsafe {
                write_unit(
                    first.add(segments.len() * UNIT),
                    DataSegment::TERMINATOR.to_words(),
                )
            };
        }
        Ok(())
    }
}

/// Completed WQEs that go back to the list together.
#[derive(Debug)]
pub(crate) struct Returns<'a> {
    cookies: &'a [AtomicU64],
    size: RingSize,
    buf: NonNull<u8>,
    stride: usize,
    tail: u32,
}

impl Returns<'_> {
    /// Appends the WQE at `index`, as a completion names it, and answers its
    /// cookie.
    #[inline(always)]
    pub(crate) fn take(&mut self, index: u16) -> u64 {
        let index = self.size.index(u32::from(index));
        // SAFETY: the tail is an index of the ring, always masked.
        let link = unsafe { link(self.buf, self.stride, self.tail as usize) };
        link.write(Be16::new(index as u16).to_bits());
        self.tail = index as u32;
        // SAFETY: masked to the ring, which has as many cookies as WQEs.
        unsafe { self.cookies.get_unchecked(index) }.load(Ordering::Relaxed)
    }
}

impl SharedRecvConsumer {
    /// The completing half of the ring that `layout` describes.
    ///
    /// # Errors
    /// If the layout contradicts itself.
    ///
    /// # Safety
    /// The memory that the layout names is valid, aligned as the device
    /// demands, linked from head to tail, and used by nobody else, for as long
    /// as either half lives.
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
            tail: AtomicU32::new(u32::from(layout.tail)),
            returned: AtomicU32::new(0),
            // SAFETY: the layout's record, valid as the caller promises.
            record: unsafe { DoorbellRecord::new(layout.dbrec) },
            lock: BiasedLock::new(),
            size,
            cookies: (0..size.count()).map(|_| AtomicU64::new(0)).collect(),
            buf: layout.buf,
            stride: layout.stride as usize,
        })
    }

    /// From now on there may be several pollers. Call before the second one
    /// can see a completion of this queue; callers take turns.
    pub fn allow_several_pollers(&self) {
        self.lock.revoke_bias();
    }

    /// The cookie of the WQE at `index`, as a completion names it.
    #[inline(always)]
    pub fn cookie(&self, index: u16) -> u64 {
        // SAFETY: masked to the ring, which has as many cookies as WQEs.
        let cookie = unsafe {
            self.cookies
                .get_unchecked(self.size.index(u32::from(index)))
        };
        cookie.load(Ordering::Relaxed)
    }

    /// Appends a completed WQE to the free list.
    pub fn free(&self, index: u16) {
        let index = self.size.index(u32::from(index)) as u32;
        self.lock.with(|| self.append(index));
    }

    /// As [`Self::free`] after [`Self::cookie`], but only as long as there is
    /// one poller: answers `None`, and does nothing, if there may be more.
    #[inline(always)]
    pub(crate) fn take_alone(&self, index: u16) -> Option<u64> {
        let cookie = self.cookie(index);
        let index = self.size.index(u32::from(index)) as u32;
        self.lock.try_biased(|| self.append(index)).map(|()| cookie)
    }

    /// Lets `take` append several WQEs, and answer how many; the producer sees
    /// them when it has ended. As [`Self::take_alone`], only as long as there is
    /// one poller.
    #[inline(always)]
    pub(crate) fn return_alone(
        &self,
        take: impl FnOnce(&mut Returns<'_>) -> usize,
    ) -> Option<usize> {
        self.lock.try_biased(|| {
            let mut returns = Returns {
                cookies: &self.cookies,
                size: self.size,
                buf: self.buf,
                stride: self.stride,
                tail: self.tail.load(Ordering::Relaxed),
            };
            let taken = take(&mut returns);
            // Release: the links are written, the cookies and WQEs are read.
            self.tail.store(returns.tail, Ordering::Release);
            let returned = self.returned.load(Ordering::Relaxed);
            self.returned
                .store(returned.wrapping_add(taken as u32), Ordering::Relaxed);
            taken
        })
    }

    /// Under the lock.
    #[inline(always)]
    fn append(&self, index: u32) {
        let tail = self.tail.load(Ordering::Relaxed) as usize;
        // SAFETY: the tail is an index of the ring, always masked.
        let link = unsafe { link(self.buf, self.stride, tail) };
        link.write(Be16::new(index as u16).to_bits());
        // Release: the link is written, the cookie and the WQE are read.
        self.tail.store(index, Ordering::Release);
        // One instruction on memory, where packing both into a word takes four.
        let returned = self.returned.load(Ordering::Relaxed);
        self.returned
            .store(returned.wrapping_add(1), Ordering::Relaxed);
    }

    /// Receives that were posted and not returned. For any thread; exact when
    /// nobody posts or polls meanwhile.
    pub(crate) fn outstanding(&self) -> u32 {
        let returned = self.returned.load(Ordering::Relaxed);
        // The record has 16 bits of the count of posts; fewer are outstanding.
        self.record.get().wrapping_sub(returned) & 0xffff
    }

    /// The segments of the receive at `index` that so many bytes go to.
    pub(crate) fn units(&self, index: u16, length: u32, units: &mut Units) {
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
