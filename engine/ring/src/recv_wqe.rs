//! The WQEs of receive queues and shared receive queues, and the loop that
//! posts a list.
//!
//! A WQE is a header (in a shared queue alone, where it links to the next WQE),
//! then data segments, then a terminator if there is room left.

use core::borrow::Borrow;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::RingSize;
use crate::request::{ListError, Message, PostError, RecvRequest, Segment};
use crate::units::{data_words, fits_segment, is_plain, write_unit};
use crate::wire::{DataSegment, UNIT};

/// The WQEs that a producer of receives writes to. Posting a list copies this
/// value to registers. `HEADER` is the number of units before the first
/// segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecvWqes<const HEADER: usize> {
    buf: NonNull<u8>,
    pub(crate) size: RingSize,
    stride: usize,
    pub(crate) max_segments: usize,
    /// The consumer's `wr_id`s, by index: kept here so that a post does not
    /// touch the cache line that the poller writes.
    wr_ids: NonNull<AtomicU64>,
}

impl<const HEADER: usize> RecvWqes<HEADER> {
    /// Segments of length 0 are left out in a receive queue, and written in a
    /// shared one (libmlx5 `mlx5_post_recv`, `mlx5_post_srq_recv`).
    const WRITES_EMPTY: bool = HEADER != 0;

    /// Returns the WQEs at `buf`, one `stride` apart, of which each has one of
    /// `wr_ids`.
    pub(crate) fn new(
        buf: NonNull<u8>,
        stride: usize,
        size: RingSize,
        wr_ids: &[AtomicU64],
    ) -> Self {
        Self {
            buf,
            size,
            stride,
            max_segments: stride / UNIT - HEADER,
            wr_ids: NonNull::from(wr_ids).cast(),
        }
    }

    /// Returns the WQEs of no ring. Nothing may be written.
    pub(crate) fn none() -> Self {
        Self {
            buf: NonNull::dangling(),
            size: RingSize::ONE,
            stride: UNIT,
            max_segments: 0,
            wr_ids: NonNull::dangling(),
        }
    }

    /// Returns the address of a WQE.
    #[inline(always)]
    pub(crate) fn at(&self, index: usize) -> NonNull<u8> {
        // SAFETY: the index is below the WQE count, so the WQE is in the ring.
        unsafe { self.buf.add(index * self.stride) }
    }

    #[inline(always)]
    fn set_wr_id(&self, index: usize, wr_id: u64) {
        // SAFETY: the index is below the WQE count, which is the number of
        // `wr_id`s, and the consumer that owns them outlives the producer.
        let place = unsafe { self.wr_ids.add(index).as_ref() };
        place.store(wr_id, Ordering::Relaxed);
    }

    /// Writes a segment and the `wr_id` to the WQE at an index if the segment is neither empty
    /// nor too long, as in most receives. Returns whether it was written. Makes no outlined call.
    ///
    /// # Safety
    /// The index is below the WQE count, and the WQE is free: the device does not
    /// read its segments before the doorbell record counts it.
    #[inline(always)]
    pub(crate) unsafe fn write_one(&self, index: usize, wr_id: u64, segment: &Segment) -> bool {
        let is_written = match Self::WRITES_EMPTY {
            true => fits_segment(segment.length),
            false => is_plain(segment.length),
        };
        if !is_written {
            return false;
        }
        // SAFETY: every WQE has room for a segment behind its header.
        let first = unsafe { self.at(index).add(HEADER * UNIT) };
        // SAFETY: as above.
        unsafe { write_unit(first, data_words(segment)) };
        if self.max_segments > 1 {
            // SAFETY: and this one for a second.
            unsafe { write_unit(first.add(UNIT), DataSegment::TERMINATOR.to_words()) };
        }
        self.set_wr_id(index, wr_id);
        true
    }

    /// Writes the segments and the `wr_id` of the WQE at an index.
    ///
    /// # Errors
    /// More segments than fit, or one that is too long.
    ///
    /// # Safety
    /// As for [`Self::write_one`].
    pub(crate) unsafe fn write(
        &self,
        index: usize,
        wr_id: u64,
        segments: &[Segment],
    ) -> Result<(), PostError> {
        if segments.len() > self.max_segments {
            return Err(PostError::TooManySegments);
        }
        // SAFETY: as in `write_one`.
        let first = unsafe { self.at(index).add(HEADER * UNIT) };
        let mut used = 0;
        for segment in segments {
            if !fits_segment(segment.length) {
                return Err(PostError::MessageTooLong);
            }
            if segment.length == 0 && !Self::WRITES_EMPTY {
                continue;
            }
            // SAFETY: at most `max_segments` units are written.
            unsafe { write_unit(first.add(used * UNIT), data_words(segment)) };
            used += 1;
        }
        if used < self.max_segments {
            // SAFETY: a unit of the WQE.
            unsafe { write_unit(first.add(used * UNIT), DataSegment::TERMINATOR.to_words()) };
        }
        self.set_wr_id(index, wr_id);
        Ok(())
    }
}

/// The posting half of a ring of receives: [`crate::receive::RecvProducer`] or
/// [`crate::shared::SharedRecvProducer`].
pub trait PostReceives {
    /// Does what [`Self::post`] does for a request that has one segment, if
    /// there is room. Returns whether the receive is posted. Makes no outlined
    /// call.
    ///
    /// # Safety
    /// As for [`Self::post`].
    unsafe fn try_post(&mut self, request: &RecvRequest<'_>) -> bool;

    /// Writes receives from the front of a list, as far as there is room. `receive`
    /// returns segment and `wr_id` of a receive of the list; `None` ends the run.
    /// Returns how many it wrote.
    ///
    /// # Safety
    /// As for [`Self::post`].
    unsafe fn try_write_run<'a, T, S: Borrow<Segment>>(
        &mut self,
        list: &'a [T],
        receive: impl Fn(&'a T) -> Option<(S, u64)>,
    ) -> usize;

    /// Writes any request if there is room. Takes the parts of the request
    /// separately, so that a request on the fast path need not lie in memory.
    ///
    /// # Errors
    /// [`PostError`]; nothing is written then.
    ///
    /// # Safety
    /// As for [`Self::post`].
    unsafe fn write(&mut self, wr_id: u64, segments: &[Segment]) -> Result<(), PostError>;

    /// Stores the count of receives in the doorbell record: from then on the device
    /// may use what is written.
    fn publish(&mut self);

    /// Posts one receive.
    ///
    /// # Errors
    /// [`PostError`]; nothing is posted then.
    ///
    /// # Safety
    /// The memory of the segments is writable and left alone until the receive
    /// completes.
    #[inline]
    unsafe fn post(&mut self, request: &RecvRequest<'_>) -> Result<(), PostError> {
        // SAFETY: the segments' memory stays until the requests complete.
        unsafe {
            if !self.try_post(request) {
                self.post_slow(request.wr_id, request.segments)?;
            }
        }
        Ok(())
    }

    /// Does what [`Self::post`] does, for every request.
    ///
    /// # Errors
    /// As for [`Self::post`].
    ///
    /// # Safety
    /// As for [`Self::post`].
    #[inline(never)]
    unsafe fn post_slow(&mut self, wr_id: u64, segments: &[Segment]) -> Result<(), PostError> {
        // SAFETY: the segments' memory stays until the requests complete.
        unsafe { self.write(wr_id, segments) }?;
        self.publish();
        Ok(())
    }

    /// Posts several receives with one store to the doorbell record.
    ///
    /// # Errors
    /// [`ListError`]; the requests before the bad one are posted.
    ///
    /// # Safety
    /// As for [`Self::post`], for every request.
    #[inline]
    unsafe fn post_list<'a>(&mut self, requests: &'a [RecvRequest<'a>]) -> Result<(), ListError> {
        let mut rest = requests;
        let mut result = Ok(());
        while !rest.is_empty() {
            let one = |request: &'a RecvRequest<'a>| match request.segments {
                [segment] => Some((segment, request.wr_id)),
                _ => None,
            };
            // SAFETY: the segments' memory stays until the requests complete.
            let written = unsafe { self.try_write_run(rest, one) };
            rest = &rest[written..];
            let Some((request, behind)) = rest.split_first() else {
                break;
            };
            // SAFETY: the segments' memory stays until the requests complete.
            if let Err(error) = unsafe { self.write(request.wr_id, request.segments) } {
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

    /// Posts receives of a list, as far as the fast path takes them, with one store to the
    /// doorbell record. `message` returns a message of the list; `None` ends the list.
    /// Returns how many are posted.
    ///
    /// # Safety
    /// As for [`Self::post`], for every message.
    #[inline(always)]
    unsafe fn try_post_messages<T>(
        &mut self,
        list: &[T],
        message: impl Fn(&T) -> Option<Message>,
    ) -> usize {
        let receive = |item: &T| message(item).map(|it| (it.segment, it.wr_id));
        // SAFETY: the segments' memory stays until the requests complete.
        let written = unsafe { self.try_write_run(list, receive) };
        if written != 0 {
            self.publish();
        }
        written
    }
}
