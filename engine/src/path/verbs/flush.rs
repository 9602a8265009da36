//! Flushing what a device in ERR never looks at.
//!
//! A device that flushes once has reported all that it will report when it has
//! been moved to ERR: what is outstanding then, and is not among its
//! completions, was posted too late. Its flush is staged here. A poster looks
//! whether the queue pair fails after it has posted, and who moves it says so
//! before ([`super::record::Record::fails`]): one of the two sees the other.

use core::ops::Range;
use std::collections::HashSet;

use super::cq::{Completions, State};
use super::device::{BATCH, CompletionCalls, Device, Work};
use super::record::Record;
use super::tag::{Name, Side, Tag};
use crate::completion::Status;

/// Where one queue of a queue pair reports.
pub(super) struct End<D: Device> {
    pub(super) completions: Completions<D>,
    pub(super) name: Name,
    pub(super) side: Side,
}

impl<D: Device> Clone for End<D> {
    fn clone(&self) -> Self {
        Self {
            completions: self.completions.clone(),
            name: self.name,
            side: self.side,
        }
    }
}

impl<D: Device> End<D> {
    /// Flushes what the device will not. It is in ERR. Of sends that were not to
    /// be reported only those in `late` are: the device may have carried out others.
    pub(super) fn flush(&self, record: &Record<D>, late: Range<u32>) {
        self.completions.flush(self, record, late);
    }
}

impl<D: Device> State<D> {
    /// See [`End::flush`].
    pub(super) fn flush(
        &mut self,
        calls: &D::Completions,
        end: &End<D>,
        record: &Record<D>,
        late: Range<u32>,
    ) {
        self.stage_all(calls);
        let tag = |slot| {
            let (side, name) = (end.side, end.name);
            Tag { side, name, slot }.to_bits()
        };
        let told: HashSet<u64> = self
            .staged
            .iter()
            .map(|work| work.tag)
            .chain(self.early.tags())
            .collect();
        let slots = match end.side {
            Side::Send => &record.sends.slots,
            _ => &record.own.slots,
        };
        for slot in slots.waiting() {
            let is_late = slot.wrapping_sub(late.start) < late.end.wrapping_sub(late.start);
            let expected = end.side == Side::Recv || is_late || record.sends.is_expected(slot);
            if expected && !told.contains(&tag(slot)) {
                self.staged.push_back(Work {
                    tag: tag(slot),
                    qpn: record.qpn,
                    status: Status::WrFlush,
                    ..Work::default()
                });
            }
        }
    }

    /// Takes what the device has to tell.
    fn stage_all(&mut self, calls: &D::Completions) {
        let mut batch = [Work::default(); BATCH];
        // Others go on completing; what is meant was there at the beginning.
        let mut left = calls.capacity() as usize + 1;
        while left > 0 {
            let found = calls.poll(&mut batch);
            self.staged.extend(&batch[..found]);
            if found < BATCH {
                break;
            }
            left = left.saturating_sub(found);
        }
    }
}
