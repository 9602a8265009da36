//! What polling must know of a queue pair.

use core::fmt;
use core::sync::atomic::{AtomicU32, Ordering, fence};
use std::sync::Arc;

use super::Owner;
use super::shared::SharedState;
use crate::ring::receive::RecvConsumer;
use crate::ring::send::SendConsumer;
use crate::wire::CqeTail;

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
    pub(super) fn give_back(&self, tail: CqeTail) {
        if let (true, Receives::Shared(shared)) =
            (tail.own_op().opcode().is_responder(), &self.receives)
        {
            shared.ring.free(tail.wqe_counter());
        }
    }
}
