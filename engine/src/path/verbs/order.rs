//! Reordering of completions on a device where sends and writes complete before
//! earlier reads. Such completions are held here until the reads before them have
//! completed.
//!
//! Decision: `docs/decisions/038-siw-quirks.md`

use std::sync::Arc;

use super::cq::State;
use super::device::{Device, Work};
use super::record::Record;
use super::sends::Sent;
use super::tag::{Name, Side, Tag};
use crate::completion::{Completion, CompletionOp};

/// Completions that arrived too early, in order of arrival.
pub(super) struct Early(Vec<Work>);

impl Early {
    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }

    /// Removes and returns those of one queue pair.
    fn take(&mut self, name: Name) -> Vec<Work> {
        let (taken, left) = core::mem::take(&mut self.0)
            .into_iter()
            .partition(|work| Tag::from_bits(work.tag).is_some_and(|tag| tag.name == name));
        self.0 = left;
        taken
    }

    /// Discards those of a queue pair that was dropped or reset.
    pub(super) fn forget(&mut self, name: Name) {
        self.take(name);
    }

    /// Returns the tags of all held completions.
    pub(super) fn tags(&self) -> impl Iterator<Item = u64> {
        self.0.iter().map(|work| work.tag)
    }
}

/// What happens to a completion.
pub(super) enum Order {
    /// It is reported as usual: its queue pair needs no reordering.
    Unchanged,
    /// It is reported now.
    Report(Completion),
    /// It is held, or its request is not signalled.
    Hold,
}

impl<D: Device> State<D> {
    /// Reports the completion of a send once all earlier reads have completed.
    #[cold]
    #[inline(never)]
    pub(super) fn in_order(&mut self, work: &Work) -> Order {
        let Some((tag, record)) = self.of_unordered(work) else {
            return Order::Unchanged;
        };
        if !work.status.is_success() {
            // It waits for reads that the device flushes only in ERR.
            record.has_failed();
        }
        if record.sends.has_read_before(tag.slot) {
            self.early.0.push(*work);
            return Order::Hold;
        }
        let Some(sent) = record.sends.retire(tag.slot) else {
            return Order::Unchanged;
        };
        if sent.op == CompletionOp::Read {
            // They are looked at again, and may have to wait for the next read.
            for early in self.early.take(tag.name).into_iter().rev() {
                self.staged.push_front(early);
            }
        }
        match work.status.is_success() && !sent.signalled {
            true => Order::Hold,
            false => Order::Report(completed(work, &record, sent)),
        }
    }

    /// Returns the tag and the queue pair of a send, if its completions need
    /// reordering.
    fn of_unordered(&self, work: &Work) -> Option<(Tag, Arc<Record<D>>)> {
        let tag = Tag::of_queue_pair(work.tag).filter(|tag| tag.side == Side::Send)?;
        let record = self.table.find(tag.name)?;
        let is_there = record.quirks.any() && record.sends.slots.has(tag.slot);
        is_there.then(|| (tag, Arc::clone(record)))
    }
}

fn completed<D: Device>(work: &Work, record: &Record<D>, sent: Sent) -> Completion {
    let read = work.status.is_success() && sent.op == CompletionOp::Read;
    Completion {
        wr_id: sent.wr_id,
        byte_len: if read { sent.length } else { 0 },
        imm: sent.wr_data,
        op: sent.op,
        ..super::cq::common(work, record)
    }
}
