//! One look at a CQE: what the fast path can say of it, and consuming it.

use super::decode;
use super::record::Record;
use super::table::View;
use crate::completion::{Completion, CompletionOp};
use mlx5_rings::complete::{CompletionRing, Slot};
use mlx5_rings::send::Retired;
use mlx5_rings::wire::{CqeOpcode, OwnOp, RequestQpn};

/// What the fast path can decode a CQE as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CqeKind {
    /// A receive that went well, without immediate data.
    Recv,
    /// A request that went well.
    Request,
    /// Something else, that only the slow path decodes: an error, immediate data,
    /// payload in the CQE.
    Other,
}

/// The next CQE of a completion queue. The device has written it, and nothing
/// is consumed until [`Self::consume`]: dropping this leaves the CQE where it
/// is.
///
/// All that is known comes from the CQE's last eight bytes and from one look-up
/// of its queue pair. Inlined, it is a handful of registers.
pub struct CqeRef<'a> {
    pub(super) ring: &'a mut CompletionRing,
    pub(super) table: View<'a>,
    pub(super) slot: Slot,
    /// The last byte, with an owner bit of 0.
    pub(super) own_op: OwnOp,
    pub(super) whose: RequestQpn,
    /// The queue pair. `None` if the slow path has to find it.
    pub(super) record: Option<&'a Record>,
}

impl<'a> CqeRef<'a> {
    /// Looks at the CQE in `slot`, which is the next of `ring` and written.
    #[inline(always)]
    pub(super) fn new(
        ring: &'a mut CompletionRing,
        table: View<'a>,
        slot: Slot,
        own_op: OwnOp,
    ) -> Self {
        let whose = slot.request_qpn();
        Self {
            ring,
            table,
            slot,
            own_op,
            whose,
            record: table.find(whose.qpn()),
        }
    }

    /// The context of the endpoint, as its options gave it. `None` if only the
    /// slow path can find the endpoint.
    #[inline(always)]
    #[must_use]
    pub fn context(&self) -> Option<u64> {
        Some(self.record?.context)
    }

    /// What it is: the first thing to branch on. LLVM then compiles each kind on
    /// its own, and keeps no operation in a register to ask for it again.
    #[inline(always)]
    #[must_use]
    pub fn kind(&self) -> CqeKind {
        const RECEIVED: u8 = CqeOpcode::RESPONDER_SEND.0 << 4;
        const DONE: u8 = CqeOpcode::REQUESTER.0 << 4;
        match self.own_op.0 & !OwnOp::SOLICITED {
            RECEIVED => CqeKind::Recv,
            DONE => CqeKind::Request,
            _ => CqeKind::Other,
        }
    }

    /// The operation of a request; `None` for one that is no request of ours.
    #[inline(always)]
    #[must_use]
    pub fn request_op(&self) -> Option<CompletionOp> {
        decode::requester_op(self.whose.request_opcode())
    }

    /// Whether at least `entries` CQEs behind this one are written.
    #[inline(always)]
    #[must_use]
    pub fn has_behind(&self, entries: u32) -> bool {
        self.ring.has_behind(entries)
    }

    /// Consumes the CQE on the fast path: decodes it, gives its receive or
    /// request back to the poster and the CQE to the device. `None`: nothing is
    /// consumed, and [`crate::CompletionQueue::poll`] takes the slow path. Calls
    /// nothing out of line.
    #[inline(always)]
    #[must_use]
    pub fn consume(self) -> Option<Completion> {
        let (record, qpn, own_op) = (self.record?, self.whose.qpn(), self.own_op);
        match self.kind() {
            CqeKind::Recv => {
                let (wr_id, byte_len) = self.consume_recv()?;
                Some(decode::received(record, qpn, own_op, wr_id, byte_len))
            }
            CqeKind::Request => {
                let op = self.request_op()?;
                let byte_len = decode::read_length(self.slot, op);
                let (cookie, note) = self.consume_request()?;
                let retired = Retired { cookie, note };
                Some(decode::request(record, qpn, op, retired, byte_len))
            }
            CqeKind::Other => None,
        }
    }

    /// [`Self::consume`] of a [`CqeKind::Recv`]: its `wr_id`, and how many bytes
    /// it got. `None` also if it is none.
    #[inline(always)]
    #[must_use]
    pub fn consume_recv(self) -> Option<(u64, u32)> {
        let (CqeKind::Recv, Some(record)) = (self.kind(), self.record) else {
            return None;
        };
        // SAFETY: the completion is the next of this queue, and is consumed below.
        let wr_id = unsafe { record.receives.take_fast(self.slot.wqe_counter()) }?;
        let byte_len = self.slot.byte_count();
        self.give_back();
        Some((wr_id, byte_len))
    }

    /// [`Self::consume`] of a [`CqeKind::Request`] of ours
    /// ([`Self::request_op`]): its `wr_id`, and the note that it was posted with.
    /// `None` also if it is none.
    #[inline(always)]
    #[must_use]
    pub fn consume_request(self) -> Option<(u64, u32)> {
        let (CqeKind::Request, Some(record)) = (self.kind(), self.record) else {
            return None;
        };
        // SAFETY: the completion names the request, and this queue has all
        // completions of its ring.
        let Retired { cookie, note } = unsafe { record.sends.retire(self.slot.wqe_counter()) };
        self.give_back();
        Some((cookie, note))
    }

    /// Gives the CQE back to the device.
    #[inline(always)]
    fn give_back(self) {
        // SAFETY: the entry is written, or there were no `CqeRef`; what was needed of
        // it is read.
        unsafe { self.ring.advance() };
        self.ring.publish();
    }
}

impl core::fmt::Debug for CqeRef<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("CqeRef")
            .field("context", &self.context())
            .field("kind", &self.kind())
            .finish_non_exhaustive()
    }
}
