//! Batches: consecutive CQEs of one kind (a *run*) are consumed by one short loop.
//!
//! `poll_batch` uses [`CqeRef`] and the decoder as `poll` does, but has a loop of
//! its own, because LLVM cannot optimise a loop around [`CqeRef::consume`]. Every
//! peek ends with a barrier, and so does giving a CQE back: an `asm!` that clobbers
//! memory. After it, LLVM has to reload every value of the ring, the table and the
//! queue pair. Each iteration would look up the queue pair,
//! distinguish own from shared receives, store the consumer index, and assemble the
//! completion's constant fields. A run hoists this by hand into locals that no
//! barrier invalidates. What the CQEs have in common is looked up once, their
//! constant fields are packed once ([`Pattern`]), and receives, requests and CQEs
//! are released once, at the end of the run.
//!
//! Decision: `docs/decisions/009-batches-in-runs.md`

use super::cqe_ref::{CqeKind, CqeRef};
use super::decode;
use super::hot_qp::Found;
use super::shared::SharedState;
use crate::completion::{Completion, CompletionOp, Pattern};
use mlx5_rings::receive::RecvConsumer;
use mlx5_rings::send::Retired;
use mlx5_rings::shared::Returns;
use mlx5_rings::wire::RequestQpn;

impl CqeRef<'_> {
    /// Fills `out` with the completions of this CQE and of the following CQEs of
    /// the same kind, and advances past them. Returns how many; 0 if the CQE is
    /// left to the slow path or to [`Self::consume`]. The CQEs are given back to
    /// the device when the caller publishes the ring's consumer index.
    #[inline(always)]
    pub(super) fn consume_run(self, out: &mut [Completion]) -> usize {
        let Some(found) = self.found else {
            return 0;
        };
        match self.kind() {
            CqeKind::Recv => {
                if let Some(ring) = found.own_receives() {
                    return self.own_run(found, ring, out);
                }
                match found.shared_receives() {
                    Some(shared) => self.shared_run(found, shared, out),
                    None => 0,
                }
            }
            CqeKind::RecvInCqe => self.in_cqe(found, out),
            CqeKind::Request => match self.request_op() {
                // Each CQE has a length of its own.
                Some(CompletionOp::Read) | None => 0,
                Some(op) => self.request_run(found, op, out),
            },
            CqeKind::RecvImm | CqeKind::RecvWriteImm | CqeKind::Other => 0,
        }
    }

    /// Consumes one receive whose payload is in the CQE.
    #[inline(always)]
    fn in_cqe(self, found: Found<'_>, out: &mut [Completion]) -> usize {
        let (qpn, own_op) = (self.op_qpn.qpn(), self.own_op);
        let [place, ..] = out else { return 0 };
        let taken = self.consume_in_cqe(|wr_id, byte_len| {
            *place = decode::received(found.context(), qpn, own_op, wr_id, byte_len);
        });
        usize::from(taken.is_some())
    }

    /// Consumes receives of one queue pair's own receive queue.
    #[inline(always)]
    fn own_run(self, found: Found<'_>, ring: &RecvConsumer, out: &mut [Completion]) -> usize {
        let Self {
            op_qpn,
            own_op,
            table,
            ..
        } = self;
        let entries = self.ring;
        let mut run = entries.run(own_op);
        let context = found.context();
        let pattern = Pattern::of(decode::received(context, op_qpn.qpn(), own_op, 0, 0));
        let wr_ids = ring.wr_ids();
        let taken = fill(out, |place| {
            let slot = run.peek()?;
            let tail = slot.tail_of(op_qpn)?;
            let wr_id = wr_ids.at(tail.wqe_counter());
            *place = pattern.completion(wr_id, context, slot.byte_count(), 0);
            // SAFETY: `peek` has returned the entry.
            unsafe { run.advance(|group| table.look_ahead(group)) };
            Some(())
        });
        if !is_still(found, op_qpn) {
            return 0;
        }
        // SAFETY: that many completions of this queue were read.
        unsafe { ring.retire(taken as u32) };
        // SAFETY: the run has passed that many entries.
        unsafe { entries.end_run(run, taken) };
        taken
    }

    /// Consumes requests of one queue pair with the same operation.
    #[inline(always)]
    fn request_run(self, found: Found<'_>, op: CompletionOp, out: &mut [Completion]) -> usize {
        const UNKNOWN: Retired = Retired {
            wr_id: 0,
            wr_data: 0,
        };
        let Self {
            op_qpn,
            own_op,
            table,
            ..
        } = self;
        let entries = self.ring;
        let mut run = entries.run(own_op);
        let context = found.context();
        let pattern = Pattern::of(decode::request(context, op_qpn.qpn(), op, UNKNOWN, 0));
        let requests = found.sends().requests();
        let mut last = None;
        let taken = fill(out, |place| {
            let slot = run.peek().filter(|slot| slot.request_qpn() == op_qpn)?;
            let request = requests.at(slot.wqe_counter());
            *place = pattern.completion(request.wr_id(), context, 0, request.wr_data());
            last = Some(request);
            // SAFETY: `peek` has returned the entry.
            unsafe { run.advance(|group| table.look_ahead(group)) };
            Some(())
        });
        if !is_still(found, op_qpn) {
            return 0;
        }
        if let Some(last) = last {
            // SAFETY: a request of this ring, whose completion was read.
            unsafe { found.sends().retire_up_to(last) };
        }
        // SAFETY: the run has passed that many entries.
        unsafe { entries.end_run(run, taken) };
        taken
    }

    /// Consumes receives of one shared receive queue, of any of its queue pairs.
    /// These are looked up one by one, so CQEs of many queue pairs make one run.
    #[inline(always)]
    fn shared_run(self, first: Found<'_>, shared: &SharedState, out: &mut [Completion]) -> usize {
        let Self { own_op, table, .. } = self;
        let entries = self.ring;
        let mut run = entries.run(own_op);
        let lookup = table.lookup;
        let common = decode::received(first.context(), 0, own_op, 0, 0);
        let take = |returns: &mut Returns<'_>| {
            fill(out, |place| {
                let slot = run.peek()?;
                let op_qpn = slot.request_qpn();
                // SAFETY: this is the polling thread, whose table is borrowed.
                let found = unsafe { lookup.find(op_qpn) }?;
                if !found.takes_from(shared) {
                    return None;
                }
                // SAFETY: the completion of a receive of this queue, which was
                // read.
                let wr_id = unsafe { returns.take(slot.wqe_counter()) };
                let qpn = op_qpn.qpn();
                let pattern = Pattern::of(Completion { qpn, ..common });
                *place = pattern.completion(wr_id, found.context(), slot.byte_count(), 0);
                // SAFETY: `peek` has returned the entry.
                unsafe { run.advance(|group| table.look_ahead(group)) };
                Some(())
            })
        };
        // SAFETY: a queue whose completions several threads poll has enabled that
        // (`SharedState::add_poller`).
        let taken = unsafe { shared.ring.return_alone(take) }.unwrap_or(0);
        // SAFETY: the run has passed that many entries.
        unsafe { entries.end_run(run, taken) };
        taken
    }
}

/// Calls `next` for one place of `out` after the other, until it returns `None`.
/// Returns how many places it has filled. What is left of `out` is the only counter,
/// which leaves a register to `next`.
#[inline(always)]
fn fill(out: &mut [Completion], mut next: impl FnMut(&mut Completion) -> Option<()>) -> usize {
    let room = out.len();
    let mut rest = out;
    while let [place, behind @ ..] = rest {
        if next(place).is_none() {
            return room - behind.len() - 1;
        }
        rest = behind;
    }
    room
}

/// Returns whether all CQEs of a run belong to the queue pair. Another thread may have
/// reset the queue pair during the run, after which new completions have the same
/// QP number. The reset retires its place before any of these can arrive, so
/// checking the place after the CQEs were read is sufficient. Nothing of the run
/// has been released yet.
#[inline(always)]
fn is_still(found: Found<'_>, op_qpn: RequestQpn) -> bool {
    found.is(op_qpn.qpn())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::poller::Poller;
    use super::super::record::{Receives, Record};
    use super::*;
    use crate::testing::Memory;
    use mlx5_rings::layout::{CompletionLayout, RecvLayout};
    use mlx5_rings::send::SendConsumer;

    /// A run during which the queue pair is reset releases nothing, and leaves its
    /// CQEs to the slow path.
    #[test]
    fn a_run_whose_queue_pair_was_reset_consumes_nothing() {
        const QPN: u32 = 9;
        let memory = Arc::new(Memory::new(1024, 0));
        let entry = |at: usize| {
            memory.write(at * 64 + 56, &QPN.to_be_bytes());
            memory.write(at * 64 + 63, &[0x20]);
        };
        let cq = CompletionLayout {
            buf: memory.at(0),
            cqe_count: 4,
            cqe_size: 64,
            dbrec: memory.at(512).cast(),
            uar: memory.at(576),
            cqn: 1,
        };
        let queue = RecvLayout {
            buf: memory.at(768),
            wqe_count: 4,
            stride: 16,
            dbrec: memory.at(520).cast(),
        };
        // SAFETY: the memory outlives all objects of this test.
        let ring = unsafe { RecvConsumer::new(&queue) }.unwrap();
        // SAFETY: as above.
        let mut poller = unsafe { Poller::new(&cq, Arc::new(())) }.unwrap();
        let record = Arc::new(Record::new(
            QPN,
            0,
            Receives::Own(ring),
            SendConsumer::none(),
            Arc::new(()),
        ));
        let Receives::Own(ring) = &record.receives else {
            unreachable!("as made");
        };
        (0..3).for_each(entry);
        let mut out = [Completion::default(); 4];
        let before = (ring.outstanding(), poller.ring.consumed());
        poller.table.insert(Arc::clone(&record));
        let places = poller.table.places().clone();
        let cqe = poller.peek().expect("a CQE");
        assert!(cqe.found.is_some());
        places.retire(QPN);
        assert_eq!(cqe.consume_run(&mut out), 0);
        let after = (ring.outstanding(), poller.ring.consumed());
        assert_eq!(after, before, "nothing is released");
    }
}
