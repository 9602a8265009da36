//! A reference to the next CQE: what the fast path decodes of it, and consuming it.
//!
//! Decisions: `docs/decisions/010-one-look-at-a-cqe.md`, `docs/decisions/074-look-ahead.md`

use super::decode;
use super::hot_qp::Found;
use super::poller::Poller;
use super::table::Table;
use crate::completion::{Completion, CompletionOp};
use mlx5_rings::complete::{CompletionRing, Slot};
use mlx5_rings::request::AtomicOp;
use mlx5_rings::send::Retired;
use mlx5_rings::wire::{CqeOpcode, OwnOp, RequestQpn};

/// The kinds of CQEs that the fast path distinguishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CqeKind {
    /// A successful receive without immediate data.
    Recv,
    /// A successful receive without immediate data whose payload, up to 32 bytes, is in
    /// the CQE.
    RecvInCqe,
    /// A successful receive of a message with immediate data ([`CqeRef::imm`]), and no payload in
    /// the CQE. [`CqeRef::consume`] leaves it to the slow path.
    RecvImm,
    /// As [`Self::RecvImm`], of an RDMA write.
    RecvWriteImm,
    /// A successful request of the send queue.
    Request,
    /// Any other CQE, which only the slow path decodes: an error, any other payload in the CQE.
    Other,
}

/// The next CQE of a completion queue, which the device has written. Nothing is
/// consumed before [`Self::consume`]: dropping this value leaves the CQE in the
/// queue.
///
/// It is made from the last eight bytes of the CQE and one lookup of its queue
/// pair. Inlined, it is a few registers.
pub struct CqeRef<'a> {
    pub(super) ring: &'a mut CompletionRing,
    pub(super) table: &'a Table,
    pub(super) slot: Slot,
    /// The last byte, with the owner bit cleared.
    pub(super) own_op: OwnOp,
    pub(super) op_qpn: RequestQpn,
    /// The queue pair; `None` if only the slow path can find it.
    pub(super) found: Option<Found<'a>>,
}

impl<'a> CqeRef<'a> {
    /// Reads the CQE in `slot`, which is the next one of the poller's ring and has been written.
    #[inline(always)]
    pub(crate) fn new(poller: &'a mut Poller, slot: Slot, own_op: OwnOp) -> Self {
        let op_qpn = slot.request_qpn();
        let Poller { ring, table, .. } = poller;
        Self {
            // SAFETY: this is the polling thread, and the table is borrowed.
            found: unsafe { table.lookup.find(op_qpn) },
            ring,
            table,
            slot,
            own_op,
            op_qpn,
        }
    }

    /// Returns the context of the endpoint, or `None` if only the slow path can
    /// find the endpoint.
    #[inline(always)]
    #[must_use]
    pub fn context(&self) -> Option<u64> {
        Some(self.found?.context())
    }

    /// Returns the kind of the CQE. Callers branch on it first: LLVM then compiles
    /// each kind separately, and does not keep the operation in a register.
    #[inline(always)]
    #[must_use]
    pub fn kind(&self) -> CqeKind {
        const RECEIVED: u8 = CqeOpcode::RESPONDER_SEND.0 << 4;
        const IN_CQE: u8 = RECEIVED | OwnOp::SCATTER_32;
        const SEND_IMM: u8 = CqeOpcode::RESPONDER_SEND_IMM.0 << 4;
        const WRITE_IMM: u8 = CqeOpcode::RESPONDER_WRITE_IMM.0 << 4;
        const DONE: u8 = CqeOpcode::REQUESTER.0 << 4;
        match self.own_op.0 & !OwnOp::SOLICITED {
            RECEIVED => CqeKind::Recv,
            IN_CQE => CqeKind::RecvInCqe,
            DONE => CqeKind::Request,
            SEND_IMM => CqeKind::RecvImm,
            WRITE_IMM => CqeKind::RecvWriteImm,
            _ => CqeKind::Other,
        }
    }

    /// Returns the operation of a request; `None` if only the slow path decodes its
    /// completion: an atomic operation, or an opcode of no request of the engine.
    #[inline(always)]
    #[must_use]
    pub fn request_op(&self) -> Option<CompletionOp> {
        decode::common_op(self.op_qpn.request_opcode())
    }

    /// Returns the operation of a request that [`Self::consume`] leaves to the slow path, but that
    /// [`Self::consume_request`] consumes: an atomic operation whose result the device has
    /// written to memory.
    #[must_use]
    #[inline(always)]
    pub fn extended_op(&self) -> Option<CompletionOp> {
        decode::requester_op(self.op_qpn.request_opcode())
    }

    /// Returns the immediate data of a receive that has some, in host byte order.
    #[inline(always)]
    #[must_use]
    pub fn imm(&self) -> u32 {
        self.slot.imm()
    }

    /// Returns whether at least `entries` CQEs after this one have been written.
    #[inline(always)]
    #[must_use]
    pub fn has_more(&self, entries: u32) -> bool {
        self.ring.has_more(entries)
    }

    /// Consumes the CQE on the fast path: decodes it, releases its receive or
    /// request to the producer, and gives the CQE back to the device. Returns
    /// `None`, with nothing consumed, if [`crate::CompletionQueue::poll`] has to
    /// take the slow path. Makes no outlined call.
    #[inline(always)]
    #[must_use]
    pub fn consume(self) -> Option<Completion> {
        let (found, qpn, own_op) = (self.found?, self.op_qpn.qpn(), self.own_op);
        let context = found.context();
        match self.kind() {
            CqeKind::Recv => self.consume_recv(|wr_id, byte_len| {
                decode::received(context, qpn, own_op, wr_id, byte_len)
            }),
            CqeKind::RecvInCqe => self.consume_in_cqe(|wr_id, byte_len| {
                decode::received(context, qpn, own_op, wr_id, byte_len)
            }),
            CqeKind::Request => {
                let op = self.request_op()?;
                let byte_len = decode::read_length(self.slot, op);
                let (wr_id, wr_data) = self.consume_request()?;
                let retired = Retired { wr_id, wr_data };
                Some(decode::request(context, qpn, op, retired, byte_len))
            }
            CqeKind::RecvImm | CqeKind::RecvWriteImm | CqeKind::Other => None,
        }
    }

    /// As [`Self::consume`], for the atomic operations, which that function leaves: they would cost
    /// it a test of every request.
    #[inline(always)]
    pub(super) fn consume_atomic(self) -> Option<Completion> {
        let op = self.extended_op().filter(|op| op.is_atomic())?;
        let (context, qpn) = (self.context()?, self.op_qpn.qpn());
        let (wr_id, wr_data) = self.consume_request()?;
        let retired = Retired { wr_id, wr_data };
        Some(decode::request(context, qpn, op, retired, AtomicOp::BYTES))
    }

    /// Consumes a CQE of a receive whose payload is in memory, as [`Self::consume`] does. Calls
    /// `with` with its `wr_id` and its length in bytes before the CQE is given back, so that both
    /// need no registers after that. Returns `None` also for any other kind.
    #[inline(always)]
    #[must_use]
    pub fn consume_recv<R>(self, with: impl FnOnce(u64, u32) -> R) -> Option<R> {
        let (CqeKind::Recv | CqeKind::RecvImm | CqeKind::RecvWriteImm) = self.kind() else {
            return None;
        };
        let found = self.found?;
        // SAFETY: the completion is the next of this queue, and is consumed below.
        let wr_id = unsafe { found.take_recv(self.slot.wqe_counter()) }?;
        let result = with(wr_id, self.slot.byte_count());
        self.release();
        Some(result)
    }

    /// Consumes a CQE of [`CqeKind::RecvInCqe`] as [`Self::consume_recv`] does, after
    /// copying its payload to the first segment of the receive. `None` also if the
    /// payload needs more than that segment.
    #[inline(always)]
    #[must_use]
    pub fn consume_in_cqe<R>(self, with: impl FnOnce(u64, u32) -> R) -> Option<R> {
        let (CqeKind::RecvInCqe, Some(found)) = (self.kind(), self.found) else {
            return None;
        };
        // SAFETY: the completion is the next of this queue, and is consumed below; its kind
        // says where its payload is.
        let (wr_id, byte_len) = unsafe { found.take_in_cqe(self.slot, self.op_qpn.qpn()) }?;
        let result = with(wr_id, byte_len);
        self.release();
        Some(result)
    }

    /// Consumes a CQE of [`CqeKind::Request`] with a known operation
    /// ([`Self::request_op`]), as [`Self::consume`] does, but does not look ahead. Returns the
    /// `wr_id` and the `wr_data` of the request; `None` also for any other kind.
    #[inline(always)]
    #[must_use]
    pub fn consume_request(self) -> Option<(u64, u32)> {
        let (CqeKind::Request, Some(found)) = (self.kind(), self.found) else {
            return None;
        };
        // SAFETY: the completion names the request, and all completions of its ring
        // are in this queue.
        let Retired { wr_id, wr_data } = unsafe { found.sends().retire(self.slot.wqe_counter()) };
        // Looking ahead here, too, would cost every dequeue from C two instructions. Batches
        // of requests look ahead.
        // SAFETY: as in `release`.
        unsafe { self.ring.advance() };
        self.ring.publish();
        Some((wr_id, wr_data))
    }

    /// Gives the CQE back to the device.
    #[inline(always)]
    fn release(self) {
        // SAFETY: the entry has been written, since there is a `CqeRef`, and
        // everything needed of it has been read.
        unsafe {
            self.ring
                .advance_ahead(|group| self.table.look_ahead(group))
        };
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
