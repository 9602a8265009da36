//! The record of a queue pair: what polling needs of it.

use core::fmt;
use core::sync::atomic::{AtomicU32, Ordering, fence};
use std::sync::Arc;

use super::Owner;
use super::shared::SharedState;
use mlx5_rings::complete::Slot;
use mlx5_rings::receive::RecvConsumer;
use mlx5_rings::scatter::{FirstSegment, Units, scatter_to_first};
use mlx5_rings::send::SendConsumer;
use mlx5_rings::wire::CqeTail;

/// A value that is not a QP number: QP numbers have 24 bits.
const NO_QPN: u32 = u32::MAX;

/// The queue that the receives of a queue pair come from.
#[derive(Debug)]
pub(super) enum Receives {
    /// None: the queue pair only sends.
    None,
    /// The queue pair's own receive queue.
    Own(RecvConsumer),
    /// A shared receive queue.
    Shared(Arc<SharedState>),
}

impl Receives {
    /// Takes the receive that a completion names off its queue, which releases it
    /// to the producer. Returns its `wr_id`; `None` if there is no queue.
    ///
    /// The queue's own counter (`retired`, `returned`) is the only count of
    /// completed receives. The number of outstanding ones follows from this counter
    /// and the doorbell record.
    ///
    /// # Safety
    /// The caller polls the completion queue that has the completion, has read the
    /// completion, and calls this once for it.
    pub(super) unsafe fn take(&self, wqe_counter: u16) -> Option<u64> {
        // SAFETY: required of the caller.
        if let Some(wr_id) = unsafe { self.take_fast(wqe_counter) } {
            return Some(wr_id);
        }
        let Self::Shared(shared) = self else {
            return None;
        };
        let wr_id = shared.ring.wr_id(wqe_counter);
        // SAFETY: required of the caller; a queue whose completions several threads
        // poll has enabled that (`SharedState::add_poller`).
        unsafe { shared.ring.free(wqe_counter) };
        Some(wr_id)
    }

    /// Does what [`Self::take`] does, on the fast path. Returns `None`, with
    /// nothing taken, also if a shared receive completed out of order, or if the
    /// shared receive queue has several pollers. Makes no outlined call.
    ///
    /// # Safety
    /// As for [`Self::take`].
    #[inline(always)]
    pub(super) unsafe fn take_fast(&self, wqe_counter: u16) -> Option<u64> {
        match self {
            Self::Own(ring) => {
                let wr_id = ring.wr_id(wqe_counter);
                // SAFETY: required of the caller.
                unsafe { ring.retire(1) };
                Some(wr_id)
            }
            // SAFETY: as in `take`.
            Self::Shared(shared) => unsafe { shared.ring.take_next(wqe_counter) },
            Self::None => None,
        }
    }

    /// Collects the segments that the first `length` bytes of a receive are copied
    /// to. `None` if there is no queue.
    pub(super) fn units(&self, wqe_counter: u16, length: u32, units: &mut Units) -> Option<()> {
        match self {
            Self::Own(ring) => ring.units(wqe_counter, length, units),
            Self::Shared(shared) => shared.ring.units(wqe_counter, length, units),
            Self::None => return None,
        }
        Some(())
    }
}

/// State that the poster shares with the pollers of the send and the receive queue.
/// The consumer of each ring is used by that queue's poller only.
#[repr(C)]
pub(super) struct Record {
    /// The QP number while the queue pair lives, else [`NO_QPN`]. Polling compares
    /// it, so one store removes the queue pair from every table.
    live_qpn: AtomicU32,
    qpn: u32,
    /// The context of every completion of the queue pair. It lies beside
    /// `live_qpn`, in a cache line that polling has just read.
    pub(super) context: u64,
    /// The address of the shared receive queue that the receives come from; 0 if there is
    /// none. Comparing it takes fewer instructions than matching `receives`.
    shared: usize,
    pub(super) receives: Receives,
    pub(super) sends: SendConsumer,
    /// Last field: the rings are dropped before their memory.
    _owner: Owner,
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record")
            .field("qpn", &self.qpn)
            .finish_non_exhaustive()
    }
}

impl Record {
    pub(super) fn new(
        qpn: u32,
        context: u64,
        receives: Receives,
        sends: SendConsumer,
        owner: Owner,
    ) -> Self {
        Self {
            live_qpn: AtomicU32::new(qpn),
            qpn,
            context,
            shared: match &receives {
                Receives::Shared(shared) => Arc::as_ptr(shared).addr(),
                _ => 0,
            },
            receives,
            sends,
            _owner: owner,
        }
    }

    /// Returns a record that never matches a QP number.
    pub(super) fn unused() -> Self {
        Self {
            live_qpn: AtomicU32::new(NO_QPN),
            qpn: NO_QPN,
            context: 0,
            shared: 0,
            receives: Receives::None,
            sends: SendConsumer::none(),
            _owner: Arc::new(()),
        }
    }

    /// Returns whether this is the record of the live queue pair `qpn`.
    #[inline(always)]
    pub(super) fn is(&self, qpn: u32) -> bool {
        self.live_qpn.load(Ordering::Relaxed) == qpn
    }

    /// Returns whether the receives come from that shared receive queue.
    #[inline(always)]
    pub(super) fn takes_from(&self, shared: &SharedState) -> bool {
        self.shared == core::ptr::from_ref(shared).addr()
    }

    /// Returns the QP number, also after [`Self::retire`].
    pub(super) fn qpn(&self) -> u32 {
        self.qpn
    }

    /// Removes the queue pair from every table, by invalidating its number.
    pub(super) fn retire(&self) {
        self.live_qpn.store(NO_QPN, Ordering::Relaxed);
        // Orders this store before any later store to the rings: see
        // `was_live_until_now`.
        fence(Ordering::SeqCst);
    }

    /// Returns whether everything that was read from the rings before this call
    /// belonged to this queue pair.
    #[inline(always)]
    pub(super) fn was_live_until_now(&self) -> bool {
        fence(Ordering::Acquire);
        self.is(self.qpn)
    }

    /// Copies the payload in the CQE in `slot` to the first segment of its receive, then
    /// takes the receive as [`Receives::take_fast`] does. Returns its `wr_id` and the
    /// bytes received. Returns `None`, with nothing taken, also if the payload needs more
    /// than that segment; the slow path then copies it again.
    ///
    /// # Safety
    /// As for [`Receives::take`]; and the CQE says that it has a payload in its first 32
    /// bytes.
    #[inline(always)]
    pub(super) unsafe fn take_in_cqe(&self, slot: Slot) -> Option<(u64, u32)> {
        let (receive, length) = (slot.wqe_counter(), slot.byte_count());
        // The queues separately, so that LLVM distinguishes them once.
        match &self.receives {
            Receives::Own(ring) => {
                let wr_id = ring.wr_id(receive);
                // SAFETY: required of the caller.
                unsafe {
                    self.fill(slot, length, ring.first_segment(receive))?;
                    ring.retire(1);
                }
                Some((wr_id, length))
            }
            Receives::Shared(shared) => {
                // SAFETY: required of the caller.
                let wr_id = unsafe {
                    self.fill(slot, length, shared.ring.first_segment(receive))?;
                    shared.ring.take_next(receive)?
                };
                Some((wr_id, length))
            }
            Receives::None => None,
        }
    }

    /// Copies the payload in a CQE to the first segment of its receive.
    ///
    /// # Safety
    /// As for [`Self::take_in_cqe`]; `segment` was read from that receive's WQE.
    #[inline(always)]
    unsafe fn fill(&self, slot: Slot, length: u32, segment: FirstSegment) -> Option<()> {
        // A reset on another thread may have let new receives into the ring while the
        // segment was read, which is then another receive's.
        if !self.was_live_until_now() {
            return None;
        }
        // SAFETY: the entry has been written. The segment is that of an outstanding
        // receive. Its poster promised that the memory stays valid until the receive
        // completes, which is after this call.
        unsafe { scatter_to_first(slot, length, segment) }.then_some(())
    }

    /// Releases the shared receive of a completion that will not be reported, if it
    /// has one.
    ///
    /// # Safety
    /// As for [`Receives::take`], in whose place this is called.
    pub(super) unsafe fn release(&self, tail: CqeTail) {
        if let (true, Receives::Shared(shared)) =
            (tail.own_op().opcode().is_responder(), &self.receives)
        {
            // SAFETY: as in `Receives::take`.
            unsafe { shared.ring.free(tail.wqe_counter()) };
        }
    }
}
