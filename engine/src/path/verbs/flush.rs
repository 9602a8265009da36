//! Flushing what a device in ERR never looks at.
//!
//! A device that flushes once has reported all that it will report when it has
//! been moved to ERR: what is outstanding then, and is not among its
//! completions, was posted too late. Its flush is staged here. A poster looks
//! whether the queue pair fails after it has posted, and who moves it says so
//! before ([`super::record::Record::fails`]): one of the two sees the other.

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
    /// Flushes what the device will not. It is in ERR. Every request is signalled
    /// on such a device, so one without a completion was not carried out.
    pub(super) fn flush(&self, record: &Record<D>) {
        self.completions.flush(self, record);
    }
}

impl<D: Device> State<D> {
    /// See [`End::flush`]. Returns whether there was anything to flush.
    pub(super) fn flush(
        &mut self,
        calls: &D::Completions,
        end: &End<D>,
        record: &Record<D>,
    ) -> bool {
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
        let mut flushed = false;
        for slot in slots.waiting() {
            if !told.contains(&tag(slot)) {
                flushed = true;
                self.staged.push_back(Work {
                    tag: tag(slot),
                    qpn: record.qpn,
                    status: Status::WrFlush,
                    ..Work::default()
                });
            }
        }
        flushed
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
