//! Runs: usual completions of one kind that follow each other, taken by one
//! short loop.
//!
//! What a completion has in common with the one before it is looked up once:
//! whose it is, of which kind, where the requests lie. What a run takes is
//! given back to the poster once, at its end. A run of one costs little more
//! than a completion that is taken alone.

use super::decode::{DONE, RECEIVED, requester_op, solicited};
use super::record::{Receives, Record};
use super::shared::SharedState;
use super::table::View;
use crate::completion::{Completion, CompletionFlags, CompletionOp, Pattern, Status};
use crate::ring::complete::Cursor;
use crate::ring::receive::RecvConsumer;
use crate::wire::{OwnOp, RequestQpn};

/// Fills `out` with the completions of the next run, and goes past them.
/// Answers how many: 0 if the next entry is not there, or not a usual one.
#[inline(always)]
pub(super) fn take_run(table: View<'_>, cursor: &mut Cursor, out: &mut [Completion]) -> usize {
    let (slot, form) = cursor.look();
    let kind = form & !OwnOp::SOLICITED;
    if kind != RECEIVED && kind != DONE {
        return 0;
    }
    let whose = slot.request_qpn();
    let Some(record) = table.find(whose.qpn()) else {
        return 0;
    };
    let run = Run { cursor, form, out };
    if kind == DONE {
        return run.done(whose, record);
    }
    match &record.receives {
        Receives::Own(ring) => run.received(whose, record, ring),
        Receives::Shared(shared) => run.received_shared(table, shared),
        Receives::None => 0,
    }
}

/// Entries from the cursor on whose last byte is the same, and a place for
/// what comes of them.
struct Run<'a> {
    cursor: &'a mut Cursor,
    form: u8,
    out: &'a mut [Completion],
}

impl Run<'_> {
    /// Receives of one queue pair's own queue.
    #[inline(always)]
    fn received(self, whose: RequestQpn, record: &Record, ring: &RecvConsumer) -> usize {
        let (mut ahead, turn) = self.cursor.scout();
        let context = record.context;
        let pattern = Pattern::of(Completion {
            qpn: whose.qpn(),
            flags: solicited(OwnOp(self.form)),
            ..RECEIVE
        });
        let cookies = ring.cookies();
        let mut taken = 0;
        for place in self.out {
            let (slot, form) = ahead.look();
            if form != self.form {
                break;
            }
            let Some(tail) = slot.tail_of(whose) else {
                break;
            };
            let cookie = cookies.at(tail.wqe_counter());
            *place = pattern.completion(cookie, context, slot.byte_count(), 0);
            ahead.advance(&turn);
            taken += 1;
        }
        if !is_still(record, whose) {
            return 0;
        }
        ring.retire(taken as u32);
        self.cursor.follow(ahead, taken);
        taken
    }

    /// Requests of one queue pair that were of one operation.
    #[inline(always)]
    fn done(self, whose: RequestQpn, record: &Record) -> usize {
        // Those of reads tell a length.
        let op = match requester_op(whose.request_opcode()) {
            Some(op) if op != CompletionOp::Read => op,
            _ => return 0,
        };
        let (mut ahead, turn) = self.cursor.scout();
        let context = record.context;
        let pattern = Pattern::of(Completion {
            qpn: whose.qpn(),
            op,
            ..RECEIVE
        });
        let requests = record.sends.requests();
        let mut last = None;
        let mut taken = 0;
        for place in self.out {
            let (slot, form) = ahead.look();
            if form != self.form || slot.request_qpn() != whose {
                break;
            }
            let request = requests.at(slot.wqe_counter());
            *place = pattern.completion(request.cookie(), context, 0, request.note());
            last = Some(request);
            ahead.advance(&turn);
            taken += 1;
        }
        if !is_still(record, whose) {
            return 0;
        }
        if let Some(last) = last {
            record.sends.retire_up_to(last);
        }
        self.cursor.follow(ahead, taken);
        taken
    }

    /// Receives of one shared queue, whichever queue pairs they were for: those
    /// are looked up one by one, so that many cost no more than few.
    #[inline(always)]
    fn received_shared(self, table: View<'_>, shared: &SharedState) -> usize {
        let (mut ahead, turn) = self.cursor.scout();
        let common = Completion {
            flags: solicited(OwnOp(self.form)),
            ..RECEIVE
        };
        let taken = shared.ring.return_alone(|returns| {
            let mut taken = 0;
            for place in self.out {
                let (slot, form) = ahead.look();
                if form != self.form {
                    break;
                }
                let qpn = slot.request_qpn().qpn();
                let Some(record) = table.find(qpn) else {
                    break;
                };
                if !record.takes_from(shared) {
                    break;
                }
                let cookie = returns.take(slot.wqe_counter());
                let pattern = Pattern::of(Completion { qpn, ..common });
                *place = pattern.completion(cookie, record.context, slot.byte_count(), 0);
                ahead.advance(&turn);
                taken += 1;
            }
            taken
        });
        let taken = taken.unwrap_or(0);
        self.cursor.follow(ahead, taken);
        taken
    }
}

/// What receives have in common.
const RECEIVE: Completion = Completion {
    cookie: 0,
    context: 0,
    byte_len: 0,
    imm: 0,
    qpn: 0,
    status: Status::Success,
    op: CompletionOp::Recv,
    flags: CompletionFlags::empty(),
    vendor_syndrome: 0,
};

/// Whether all that a run has seen is of the record: another thread may have
/// reset the queue pair meanwhile, and completions of its next life have come
/// under the same number. It has retired the record before any of them could
/// come, so the record tells, now that they have been seen; and nothing of the
/// run has been given back.
#[inline(always)]
fn is_still(record: &Record, whose: RequestQpn) -> bool {
    record.is(whose.qpn())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::ring::complete::CompletionRing;
    use crate::ring::layout::{CompletionLayout, RecvLayout};
    use crate::ring::send::SendConsumer;
    use crate::ring::testing::Memory;

    /// A run during which the queue pair was reset gives nothing back, and
    /// leaves its entries to a closer look.
    #[test]
    fn a_run_whose_queue_pair_is_gone_at_its_end_has_taken_nothing() {
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
        // SAFETY: the memory outlives all that is made here.
        let ring = unsafe { RecvConsumer::new(&queue) }.unwrap();
        // SAFETY: as above.
        let mut entries = unsafe { CompletionRing::new(&cq) }.unwrap();
        let record = Record::new(
            QPN,
            0,
            Receives::Own(ring),
            SendConsumer::none(),
            Arc::new(()),
        );
        let Receives::Own(ring) = &record.receives else {
            unreachable!("as made");
        };
        (0..3).for_each(entry);
        let mut out = [Completion::default(); 4];
        let (before, cursor) = (ring.outstanding(), entries.cursor);
        record.retire();
        let (slot, form) = cursor.look();
        let run = Run {
            cursor: &mut entries.cursor,
            form,
            out: &mut out,
        };
        assert_eq!(run.received(slot.request_qpn(), &record, ring), 0);
        assert_eq!(ring.outstanding(), before, "nothing is given back");
        assert_eq!(entries.cursor, cursor);
    }
}
