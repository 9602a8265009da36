//! What polling must know of a queue pair.

use core::fmt;
use core::sync::atomic::{AtomicU32, Ordering, fence};
use std::sync::Arc;

use super::Owner;
use super::shared::SharedState;
use mlx5_rings::receive::RecvConsumer;
use mlx5_rings::scatter::Units;
use mlx5_rings::send::SendConsumer;
use mlx5_rings::wire::CqeTail;

/// Not a queue pair number: those have 24 bits.
const NOBODY: u32 = u32::MAX;

/// Where the receives of a queue pair come from.
#[derive(Debug)]
pub(super) enum Receives {
    /// It can only send.
    None,
    /// Its own queue.
    Own(RecvConsumer),
    /// A shared one.
    Shared(Arc<SharedState>),
}

impl Receives {
    /// Takes the receive that a completion names off its queue, which gives it
    /// back to the poster. Returns its `wr_id`; `None` if there is no queue.
    ///
    /// The queue's own count of what came back (`retired`, `returned`) is the
    /// only count of completed receives: how many are outstanding follows from
    /// it and the doorbell record.
    ///
    /// # Safety
    /// The caller polls the queue that the completion is in, has read it, and calls
    /// this once for it.
    pub(super) unsafe fn take(&self, wqe_counter: u16) -> Option<u64> {
        // SAFETY: passed on to the caller.
        if let Some(wr_id) = unsafe { self.take_fast(wqe_counter) } {
            return Some(wr_id);
        }
        let Self::Shared(shared) = self else {
            return None;
        };
        let wr_id = shared.ring.cookie(wqe_counter);
        // SAFETY: passed on to the caller; queues whose completions several threads
        // poll have allowed that (`SharedState::add_poller`).
        unsafe { shared.ring.free(wqe_counter) };
        Some(wr_id)
    }

    /// [`Self::take`] on the fast path: `None`, and nothing is taken, also if a
    /// shared receive came back out of order, or the shared queue has several
    /// pollers. Calls nothing out of line.
    ///
    /// # Safety
    /// As for [`Self::take`].
    #[inline(always)]
    pub(super) unsafe fn take_fast(&self, wqe_counter: u16) -> Option<u64> {
        match self {
            Self::Own(ring) => {
                let wr_id = ring.cookie(wqe_counter);
                // SAFETY: passed on to the caller.
                unsafe { ring.retire(1) };
                Some(wr_id)
            }
            // SAFETY: as in `take`.
            Self::Shared(shared) => unsafe { shared.ring.take_next(wqe_counter) },
            Self::None => None,
        }
    }

    /// Collects the segments that `length` bytes go to, of the receive that a
    /// completion names. `None` if there is no queue.
    pub(super) fn units(&self, wqe_counter: u16, length: u32, units: &mut Units) -> Option<()> {
        match self {
            Self::Own(ring) => ring.units(wqe_counter, length, units),
            Self::Shared(shared) => shared.ring.units(wqe_counter, length, units),
            Self::None => return None,
        }
        Some(())
    }
}

/// Shared by the poster and the pollers of the send and the receive queue. The
/// completing half of each ring is used by that queue's poller only.
#[repr(C)]
pub(super) struct Record {
    /// The number while the queue pair lives, else [`NOBODY`]: polling compares
    /// it, so one store takes the queue pair out of every table.
    live_qpn: AtomicU32,
    qpn: u32,
    /// What every completion of the queue pair carries: beside `live_qpn`, whose
    /// cache line polling has just read.
    pub(super) context: u64,
    pub(super) receives: Receives,
    pub(super) sends: SendConsumer,
    /// Last: the rings go before the memory they lie in.
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
            receives,
            sends,
            _owner: owner,
        }
    }

    /// A record that is never any queue pair's.
    pub(super) fn nobody() -> Self {
        Self {
            live_qpn: AtomicU32::new(NOBODY),
            qpn: NOBODY,
            context: 0,
            receives: Receives::None,
            sends: SendConsumer::none(),
            _owner: Arc::new(()),
        }
    }

    /// Whether this is the living queue pair `qpn`.
    #[inline(always)]
    pub(super) fn is(&self, qpn: u32) -> bool {
        self.live_qpn.load(Ordering::Relaxed) == qpn
    }

    /// Whether its receives come from that shared queue.
    #[inline(always)]
    pub(super) fn takes_from(&self, shared: &SharedState) -> bool {
        match &self.receives {
            Receives::Shared(own) => core::ptr::eq(Arc::as_ptr(own), shared),
            _ => false,
        }
    }

    /// The number, also after [`Self::retire`].
    pub(super) fn qpn(&self) -> u32 {
        self.qpn
    }

    /// Takes the queue pair out of every table.
    pub(super) fn retire(&self) {
        self.live_qpn.store(NOBODY, Ordering::Relaxed);
        // Before anything new is written to the rings: see `was_live_until_now`.
        fence(Ordering::SeqCst);
    }

    /// Whether what was read from the rings before this call was still this
    /// queue pair's.
    pub(super) fn was_live_until_now(&self) -> bool {
        fence(Ordering::Acquire);
        self.is(self.qpn)
    }

    /// A completion of this queue pair will not be reported: a shared receive
    /// that it took goes back.
    ///
    /// # Safety
    /// As for [`Receives::take`], instead of which this is called.
    pub(super) unsafe fn give_back(&self, tail: CqeTail) {
        if let (true, Receives::Shared(shared)) =
            (tail.own_op().opcode().is_responder(), &self.receives)
        {
            // SAFETY: as in `Receives::take`.
            unsafe { shared.ring.free(tail.wqe_counter()) };
        }
    }
}
