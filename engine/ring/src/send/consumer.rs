//! The completing half of a send queue, which polling uses.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::RingSize;
use crate::layout::{LONGEST_INLINE, LayoutError, SendLayout};
use crate::scatter::{Units, read_unit};
use crate::wire::{BIND_UNITS, CtrlSegment, UNIT, WQEBB, WqeOpcode, inline_units};

/// The data of a posted request that its completion needs. There is one entry
/// per WQEBB; a WQE uses that of its first WQEBB.
#[derive(Debug, Default)]
pub(super) struct PostedWqe {
    pub(super) wr_id: AtomicU64,
    /// Requests posted up to and including this one.
    pub(super) posted: AtomicU32,
    /// The 32 bits that the request was posted with.
    pub(super) wr_data: AtomicU32,
}

impl PostedWqe {
    /// Stores the data of a request; the doorbell's barrier publishes it.
    #[inline(always)]
    pub(super) fn store(&self, wr_id: u64, posted: u32, wr_data: u32) {
        self.wr_id.store(wr_id, Ordering::Relaxed);
        self.posted.store(posted, Ordering::Relaxed);
        self.wr_data.store(wr_data, Ordering::Relaxed);
    }
}

/// A retired request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retired {
    /// The request's `wr_id`.
    pub wr_id: u64,
    /// The `wr_data` that the request was posted with.
    pub wr_data: u32,
}

/// The requests of a ring, found by the WQEBB at which their WQEs start.
#[derive(Clone, Copy, Debug)]
pub struct Requests<'a> {
    size: RingSize,
    entries: &'a [PostedWqe],
}

/// One of the [`Requests`] of a ring.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a>(&'a PostedWqe);

impl<'a> Requests<'a> {
    /// Returns the request whose WQE starts at `counter`.
    #[inline(always)]
    pub fn at(self, counter: u16) -> Request<'a> {
        let index = self.size.index(u32::from(counter));
        // SAFETY: an index of the ring, which has as many entries as WQEBBs.
        Request(unsafe { self.entries.get_unchecked(index) })
    }
}

impl Request<'_> {
    /// Returns the request's `wr_id`.
    #[inline(always)]
    pub fn wr_id(self) -> u64 {
        self.0.wr_id.load(Ordering::Relaxed)
    }

    /// Returns the `wr_data` that the request was posted with.
    #[inline(always)]
    pub fn wr_data(self) -> u32 {
        self.0.wr_data.load(Ordering::Relaxed)
    }
}

/// The completing half, for the thread that polls the completion queue of the
/// sends. The producer reads its counter and writes its entries.
#[derive(Debug)]
pub struct SendConsumer {
    pub(super) retired: AtomicU32,
    pub(super) size: RingSize,
    pub(super) capacity: u32,
    pub(super) entries: Box<[PostedWqe]>,
    buf: NonNull<u8>,
}

// SAFETY: `buf` is DMA memory, bound to no thread, and only read from here.
unsafe impl Send for SendConsumer {}
// SAFETY: as above; the other fields that change are atomics.
unsafe impl Sync for SendConsumer {}

/// Returns the most 16-byte units that one request can take: control, remote address,
/// and the segments (there is always room for one) or the inline bytes; or a
/// bind.
fn longest(layout: &SendLayout) -> u32 {
    // Counts that no WQE has room for are capped, so that sums do not overflow.
    let max_inline = layout.max_inline.min(LONGEST_INLINE + 1);
    let transfer = layout
        .max_segments
        .max(1)
        .max(inline_units(max_inline))
        .saturating_add(2);
    if layout.windows {
        transfer.max(BIND_UNITS)
    } else {
        transfer
    }
}

/// The WQEBB of [`SendConsumer::none`]: read, never written.
static NO_RING: [AtomicU64; WQEBB / 8] = [const { AtomicU64::new(0) }; WQEBB / 8];

// The longest inline request fits a WQE exactly.
const _: () = assert!(2 + inline_units(LONGEST_INLINE) == 63);
const _: () = assert!(2 + inline_units(LONGEST_INLINE + 1) == 64);

impl SendConsumer {
    /// Returns the completing half of a queue without a ring: one NOP that never completes.
    pub fn none() -> Self {
        Self {
            retired: AtomicU32::new(0),
            size: RingSize::ONE,
            capacity: 0,
            entries: Box::new([PostedWqe::default()]),
            buf: NonNull::from(&NO_RING).cast(),
        }
    }

    /// Returns the completing half of the ring that `layout` describes.
    ///
    /// # Errors
    /// If the layout contradicts itself.
    ///
    /// # Safety
    /// The memory that the layout names is valid, aligned as the device
    /// demands, and used by nothing but the two halves and the device, for as long
    /// as either half lives.
    pub unsafe fn new(layout: &SendLayout) -> Result<Self, LayoutError> {
        let size = RingSize::new(layout.wqebb_count)
            .filter(|size| size.count() <= 1 << 15)
            .ok_or(LayoutError(
                "the send queue's WQEBB count is not a power of two up to 2^15",
            ))?;
        if layout.qpn >> 24 != 0 {
            return Err(LayoutError("the queue pair number has more than 24 bits"));
        }
        let units = longest(layout);
        if units > 0x3f {
            return Err(LayoutError(
                "a request can exceed the 63 units of a send WQE",
            ));
        }
        let wqebbs = (units * UNIT as u32).div_ceil(WQEBB as u32);
        let capacity = layout.max_requests.min(size.count() / wqebbs);
        if capacity == 0 {
            return Err(LayoutError(
                "the send queue does not hold one request of the longest kind",
            ));
        }
        Ok(Self {
            retired: AtomicU32::new(0),
            size,
            capacity,
            entries: (0..size.count()).map(|_| PostedWqe::default()).collect(),
            buf: layout.buf,
        })
    }

    /// Returns the request whose WQE starts at `counter`, and releases it and
    /// all requests before it to the producer, which may overwrite their WQEs
    /// from then on.
    ///
    /// # Safety
    /// The device is done with that request and with all that were posted before
    /// it: the caller has read a completion that names it. One thread at a time
    /// retires requests of this ring.
    #[inline(always)]
    pub unsafe fn retire(&self, counter: u16) -> Retired {
        let request = self.requests().at(counter);
        let done = Retired {
            wr_id: request.wr_id(),
            wr_data: request.wr_data(),
        };
        // SAFETY: a completion that names the request was read.
        unsafe { self.retire_up_to(request) };
        done
    }

    /// Returns the requests of the ring, for a loop over several completions.
    #[inline(always)]
    pub fn requests(&self) -> Requests<'_> {
        Requests {
            size: self.size,
            entries: &self.entries,
        }
    }

    /// Releases a request, and all requests before it, to the producer.
    ///
    /// # Safety
    /// `request` is one of this ring, and the rest as for [`Self::retire`].
    #[inline(always)]
    pub unsafe fn retire_up_to(&self, request: Request<'_>) {
        let posted = request.0.posted.load(Ordering::Relaxed);
        // Release: the entry, and the WQE if it was looked at, have been read.
        self.retired.store(posted, Ordering::Release);
    }

    /// Returns whether every request that was posted has been retired. Any thread
    /// may call it; the result is exact if no thread posts or polls meanwhile.
    ///
    /// The count of posts belongs to the producer, so this function looks for
    /// an entry ahead of the retired requests.
    pub fn is_idle(&self) -> bool {
        let retired = self.retired.load(Ordering::Relaxed);
        self.entries.iter().all(|entry| {
            // Retired entries are behind. An entry that no request has used for
            // 2^31 requests seems ahead, but by more than the ring holds.
            let ahead = entry.posted.load(Ordering::Relaxed).wrapping_sub(retired);
            ahead.wrapping_sub(1) >= self.capacity
        })
    }

    /// Returns how many WQEBBs were retired, modulo 2^32: the position of the oldest
    /// request that was not retired. Any thread may call it.
    pub fn retired(&self) -> u32 {
        self.retired.load(Ordering::Relaxed)
    }

    /// Returns the segments that the first `length` bytes of the RDMA read or atomic
    /// operation at `counter` go to. `None` if the request there is neither.
    #[cold]
    pub fn read_units(&self, counter: u16, length: u32) -> Option<Units> {
        let ctrl = CtrlSegment::from_words(self.unit(counter, 0));
        let first = match WqeOpcode::from_bits(ctrl.opcode_bits())? {
            WqeOpcode::RdmaRead => 2,
            // After the operands.
            opcode if opcode.is_atomic() => 3,
            _ => return None,
        };
        let mut units = Units::new();
        units.collect(
            length,
            (first..ctrl.units()).map(|unit| self.unit(counter, unit)),
        );
        Some(units)
    }

    /// Returns the opcode of the WQE that starts at `counter`.
    #[cold]
    pub fn opcode(&self, counter: u16) -> u8 {
        CtrlSegment::from_words(self.unit(counter, 0)).opcode_bits()
    }

    /// Returns a unit of the WQE that starts at `counter`.
    fn unit(&self, counter: u16, unit: u32) -> [u64; 2] {
        const PER_WQEBB: u32 = (WQEBB / UNIT) as u32;
        let wqebb = self
            .size
            .index(u32::from(counter).wrapping_add(unit / PER_WQEBB));
        let at = wqebb * WQEBB + (unit % PER_WQEBB) as usize * UNIT;
        // SAFETY: a unit of the ring, wrapped to its size.
        unsafe { read_unit(self.buf.add(at)) }
    }
}
