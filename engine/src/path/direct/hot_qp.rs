//! What the fast path reads of a queue pair, in half a cache line.
//!
//! Decision: `docs/decisions/002-completions-by-qp-number.md`

use core::cell::Cell;
use core::fmt;
use core::ptr::{NonNull, null};
use core::sync::atomic::{AtomicU32, Ordering, fence};
use std::sync::Arc;

use super::record::{Receives, Record};
use super::shared::SharedState;
use mlx5_rings::complete::Slot;
use mlx5_rings::mmio::prefetch;
use mlx5_rings::receive::RecvConsumer;
use mlx5_rings::scatter::{FirstSegment, scatter_to_first};
use mlx5_rings::send::SendConsumer;
use mlx5_rings::wire::RequestQpn;

/// A value that is not a QP number: QP numbers have 24 bits.
const NO_QPN: u32 = u32::MAX;

/// What the fast path reads of a queue pair. Any thread may use `live_qpn`, only the polling
/// thread the other fields.
#[repr(C, align(32))]
pub(super) struct HotQp {
    /// The QP number while the queue pair lives, else [`NO_QPN`].
    live_qpn: AtomicU32,
    /// Whether the queue pair has receives of its own.
    has_own: Cell<bool>,
    context: Cell<u64>,
    /// Its own [`RecvConsumer`], or the [`SharedState`] of its shared receive queue, or null.
    receives: Cell<*const ()>,
    /// Null if the place is free.
    sends: Cell<*const SendConsumer>,
}

const _: () = assert!(size_of::<HotQp>() == 32);

// SAFETY: of the functions that a `HotQp` has, those that use its cells are for the polling
// thread only: they are unsafe, or functions of a `Found`.
unsafe impl Sync for HotQp {}
// SAFETY: as above; the cells are used through a `Table`, which owns what they point to.
unsafe impl Send for HotQp {}

impl fmt::Debug for HotQp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HotQp")
            .field("live_qpn", &self.live_qpn)
            .finish_non_exhaustive()
    }
}

impl HotQp {
    pub(super) fn free() -> Self {
        Self {
            live_qpn: AtomicU32::new(NO_QPN),
            has_own: Cell::new(false),
            context: Cell::new(0),
            receives: Cell::new(null()),
            sends: Cell::new(null()),
        }
    }

    /// Returns whether no queue pair has the place.
    ///
    /// # Safety
    /// The caller is the polling thread.
    pub(super) unsafe fn is_free(&self) -> bool {
        self.sends.get().is_null()
    }

    /// Gives the place to a queue pair.
    ///
    /// # Safety
    /// The caller is the polling thread, and keeps the record until [`Self::clear`].
    pub(super) unsafe fn give_to(&self, record: &Record) {
        self.has_own
            .set(matches!(record.receives, Receives::Own(_)));
        self.receives.set(match &record.receives {
            Receives::None => null(),
            Receives::Own(ring) => core::ptr::from_ref(ring).cast(),
            Receives::Shared(state) => Arc::as_ptr(state).cast(),
        });
        self.context.set(record.context);
        self.sends.set(&raw const record.sends);
        if record.is_live() {
            self.live_qpn.store(record.qpn(), Ordering::Relaxed);
        }
    }

    /// Takes the place from its queue pair.
    ///
    /// # Safety
    /// The caller is the polling thread.
    pub(super) unsafe fn clear(&self) {
        self.live_qpn.store(NO_QPN, Ordering::Relaxed);
        self.sends.set(null());
    }

    /// Returns whether this is the place of the live queue pair `qpn`.
    #[inline(always)]
    fn is(&self, qpn: u32) -> bool {
        self.live_qpn.load(Ordering::Relaxed) == qpn
    }

    /// Invalidates the number of the queue pair `qpn`, if this is its place.
    pub(super) fn retire(&self, qpn: u32) {
        if self.is(qpn) {
            self.live_qpn.store(NO_QPN, Ordering::Relaxed);
        }
    }

    /// Returns whether everything that was read from the rings before this call
    /// belonged to the live queue pair `qpn`.
    #[inline(always)]
    fn was_live_until_now(&self, qpn: u32) -> bool {
        fence(Ordering::Acquire);
        self.is(qpn)
    }
}

/// The places of a table: a power of two of them.
#[derive(Clone, Debug)]
pub(super) struct HotQps(Arc<[HotQp]>);

impl HotQps {
    pub(super) fn new(count: usize) -> Self {
        debug_assert!(count.is_power_of_two());
        Self((0..count).map(|_| HotQp::free()).collect())
    }

    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    pub(super) fn lookup(&self) -> Lookup {
        Lookup {
            first: NonNull::from(&*self.0).cast(),
            mask: self.0.len() - 1,
        }
    }

    /// Returns the only place that `qpn` can have.
    pub(super) fn home(&self, qpn: u32) -> &HotQp {
        &self.0[qpn as usize & (self.0.len() - 1)]
    }

    /// Invalidates the number of a queue pair that is retired, if it has its place.
    pub(super) fn retire(&self, qpn: u32) {
        self.home(qpn).retire(qpn);
    }
}

/// What a lookup reads of the places: the address of the first one, and their number minus one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lookup {
    first: NonNull<HotQp>,
    mask: usize,
}

// SAFETY: the address of places, which are `Send` and `Sync`.
unsafe impl Send for Lookup {}

impl Lookup {
    /// Returns the only place that `qpn` can have.
    #[inline(always)]
    pub(super) fn place(self, qpn: u32) -> NonNull<HotQp> {
        // SAFETY: `mask` is the number of places minus one.
        unsafe { self.first.add(qpn as usize & self.mask) }
    }

    /// Returns the live queue pair that a CQE names, if it has its place.
    ///
    /// # Safety
    /// The caller is the polling thread, and does not change its table, whose places these are,
    /// while the result is used.
    #[inline(always)]
    pub(super) unsafe fn find<'a>(self, op_qpn: RequestQpn) -> Option<Found<'a>> {
        let qpn = op_qpn.0 & RequestQpn::QPN;
        // SAFETY: the places are those of the polling thread's table, which does not change
        // meanwhile.
        let place = unsafe { self.first.add(qpn as usize & self.mask).as_ref() };
        if place.live_qpn.load(Ordering::Relaxed) != qpn {
            return None;
        }
        Some(Found(place))
    }
}

/// The place of a live queue pair, which the polling thread has found.
#[derive(Clone, Copy)]
pub(super) struct Found<'a>(&'a HotQp);

impl<'a> Found<'a> {
    /// Returns whether the queue pair is still live; `qpn` is its number.
    #[inline(always)]
    pub(super) fn is(self, qpn: u32) -> bool {
        self.0.is(qpn)
    }

    /// Returns the context of the queue pair's completions.
    #[inline(always)]
    pub(super) fn context(self) -> u64 {
        self.0.context.get()
    }

    /// Returns the completing half of the send queue.
    #[inline(always)]
    pub(super) fn sends(self) -> &'a SendConsumer {
        // SAFETY: a field of the record, which the table keeps, as `Lookup::find` was promised.
        unsafe { &*self.0.sends.get() }
    }

    /// Returns the completing half of its own receive queue, if it has one.
    #[inline(always)]
    pub(super) fn own_receives(self) -> Option<&'a RecvConsumer> {
        // SAFETY: a field of the record, as in `sends`; `has_own` says which.
        (self.0.has_own.get()).then(|| unsafe { &*self.0.receives.get().cast() })
    }

    /// Returns the state of the shared receive queue that its receives come from, if any.
    #[inline(always)]
    pub(super) fn shared_receives(self) -> Option<&'a SharedState> {
        if self.0.has_own.get() {
            return None;
        }
        // SAFETY: null, or a state that the record keeps.
        unsafe { self.0.receives.get().cast::<SharedState>().as_ref() }
    }

    /// Prefetches what a completion needs besides the place: the queue of the request or receive,
    /// and what the context is the address of, if it is one.
    #[inline(always)]
    pub(super) fn prefetch(self, is_receive: bool) {
        let Self(place) = self;
        prefetch(match is_receive {
            true => place.receives.get().cast(),
            false => place.sends.get().cast(),
        });
        // A small number is certainly no address, and would cost a page walk.
        let context = place.context.get();
        if context >= 1 << 16 {
            prefetch(context as *const u8);
        }
    }

    /// Returns whether the receives come from that shared receive queue.
    #[inline(always)]
    pub(super) fn takes_from(self, shared: &SharedState) -> bool {
        core::ptr::addr_eq(self.0.receives.get(), shared)
    }

    /// Takes the receive that a completion names off its queue, which releases it to the
    /// producer. Returns its `wr_id`. Returns `None`, with nothing taken, if there is no
    /// queue, if a shared receive completed out of order, or if the shared receive queue
    /// has several pollers. Makes no outlined call.
    ///
    /// # Safety
    /// The caller polls the completion queue that has the completion, has read the
    /// completion, and calls this once for it.
    #[inline(always)]
    pub(super) unsafe fn take_recv(self, wqe_counter: u16) -> Option<u64> {
        if self.0.has_own.get() {
            // SAFETY: as in `own_receives`.
            let ring = unsafe { &*self.0.receives.get().cast::<RecvConsumer>() };
            let wr_id = ring.wr_id(wqe_counter);
            // SAFETY: the completion of this receive was read, and is handled once.
            unsafe { ring.retire(1) };
            return Some(wr_id);
        }
        let shared = self.shared_receives()?;
        // SAFETY: the completion of this receive was read, and is handled once; a queue whose
        // completions several threads poll has enabled that (`SharedState::add_poller`).
        unsafe { shared.ring.take_next(wqe_counter) }
    }

    /// Copies the payload in the CQE in `slot` to the first segment of its receive, then
    /// takes the receive as [`Self::take_recv`] does. Returns its `wr_id` and the bytes
    /// received. Returns `None`, with nothing taken, also if the payload needs more than that
    /// segment; the slow path then copies it again.
    ///
    /// # Safety
    /// As for [`Self::take_recv`]; and the CQE says that it has a payload in its first 32
    /// bytes, for queue pair `qpn`, whose place this is.
    #[inline(always)]
    pub(super) unsafe fn take_in_cqe(self, slot: Slot, qpn: u32) -> Option<(u64, u32)> {
        let (receive, length) = (slot.wqe_counter(), slot.byte_count());
        // The queues separately, so that LLVM distinguishes them once.
        if let Some(ring) = self.own_receives() {
            let wr_id = ring.wr_id(receive);
            // SAFETY: the completion of this receive was read, and is handled once.
            unsafe {
                self.fill(slot, qpn, length, ring.first_segment(receive))?;
                ring.retire(1);
            }
            return Some((wr_id, length));
        }
        let shared = self.shared_receives()?;
        // SAFETY: the completion of this receive was read, and is handled once; as in `take_recv`.
        let wr_id = unsafe {
            self.fill(slot, qpn, length, shared.ring.first_segment(receive))?;
            shared.ring.take_next(receive)?
        };
        Some((wr_id, length))
    }

    /// Copies the payload in a CQE to the first segment of its receive.
    ///
    /// # Safety
    /// As for [`Self::take_recv`]; the CQE has its payload in its first 32 bytes, and `segment` was
    /// read from that receive's WQE.
    #[inline(always)]
    unsafe fn fill(self, slot: Slot, qpn: u32, length: u32, segment: FirstSegment) -> Option<()> {
        // A reset on another thread may have let new receives into the ring while the
        // segment was read, which is then another receive's.
        if !self.0.was_live_until_now(qpn) {
            return None;
        }
        // SAFETY: the entry has been written. The segment is that of an outstanding
        // receive. Its poster promised that the memory stays valid until the receive
        // completes, which is after this call.
        unsafe { scatter_to_first(slot, length, segment) }.then_some(())
    }
}
