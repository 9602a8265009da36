//! One look at a CQE: what the fast path can say of it, and consuming it.

use super::decode::{self, request};
use super::record::Record;
use super::table::View;
use crate::completion::{Completion, CompletionOp};
use crate::ring::complete::{CompletionRing, Slot};
use crate::wire::{OwnOp, RequestQpn};

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
    op: Option<CompletionOp>,
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
            op: decode::fast_op(own_op, whose),
        }
    }

    /// The context of the endpoint, as its options gave it. `None` if only the
    /// slow path can find the endpoint.
    #[inline(always)]
    #[must_use]
    pub fn context(&self) -> Option<u64> {
        Some(self.record?.context)
    }

    /// The operation, if the fast path can decode it: a receive without
    /// immediate data, or a request that went well; neither with its payload in
    /// the CQE. `None` for everything else, including errors.
    #[inline(always)]
    #[must_use]
    pub fn op(&self) -> Option<CompletionOp> {
        self.op
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
        let record = self.record?;
        let completion = match self.op? {
            CompletionOp::Recv => {
                let wr_id = record.receives.take_fast(self.slot.wqe_counter())?;
                let byte_len = self.slot.byte_count();
                decode::received(record, self.whose.qpn(), self.own_op, wr_id, byte_len)
            }
            op => {
                let byte_len = decode::read_length(self.slot, op);
                let retired = record.sends.retire(self.slot.wqe_counter());
                request(record, self.whose.qpn(), op, retired, byte_len)
            }
        };
        self.ring.cursor.advance();
        self.ring.publish();
        Some(completion)
    }
}

impl core::fmt::Debug for CqeRef<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("CqeRef")
            .field("context", &self.context())
            .field("op", &self.op)
            .finish_non_exhaustive()
    }
}
