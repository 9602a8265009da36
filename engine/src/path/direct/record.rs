//! The record of a queue pair: what polling needs of it.

use core::fmt;
use core::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::Arc;

use super::Owner;
use super::shared::SharedState;
use mlx5_rings::receive::RecvConsumer;
use mlx5_rings::scatter::Units;
use mlx5_rings::send::SendConsumer;
use mlx5_rings::wire::CqeTail;

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
        match self {
            Self::Own(ring) => {
                let wr_id = ring.wr_id(wqe_counter);
                // SAFETY: the completion of this receive was read, and is handled once.
                unsafe { ring.retire(1) };
                Some(wr_id)
            }
            Self::Shared(shared) => {
                let wr_id = shared.ring.wr_id(wqe_counter);
                // SAFETY: the completion of this receive was read, and is handled once; a queue
                // whose completions several threads poll has enabled that
                // (`SharedState::add_poller`).
                unsafe { shared.ring.free(wqe_counter) };
                Some(wr_id)
            }
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
pub(super) struct Record {
    is_live: AtomicBool,
    qpn: u32,
    /// The context of every completion of the queue pair.
    pub(super) context: u64,
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
            is_live: AtomicBool::new(true),
            qpn,
            context,
            receives,
            sends,
            _owner: owner,
        }
    }

    /// Returns whether the queue pair was not retired.
    pub(super) fn is_live(&self) -> bool {
        self.is_live.load(Ordering::Relaxed)
    }

    /// Returns the QP number, also after [`Self::retire`].
    pub(super) fn qpn(&self) -> u32 {
        self.qpn
    }

    /// Ends the life of the queue pair: its completions are not reported any more. The
    /// places of its tables are invalidated after this
    /// ([`CqCommandQueue::detach`](super::CqCommandQueue)).
    pub(super) fn retire(&self) {
        self.is_live.store(false, Ordering::Relaxed);
    }

    /// Returns whether everything that was read from the rings before this call
    /// belonged to this queue pair.
    pub(super) fn was_live_until_now(&self) -> bool {
        fence(Ordering::Acquire);
        self.is_live()
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
