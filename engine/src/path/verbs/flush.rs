//! Flushing requests that a device in ERR ignores.
//!
//! Some devices flush their queues once. After the move to ERR they have reported
//! everything that they will report. A request that is outstanding then, and is not
//! among the device's completions, was posted too late: its flush completion is
//! staged here. A poster checks after its post whether the queue pair is failing,
//! and a thread that moves the queue pair to ERR announces this before
//! ([`super::record::Record::fails`]). So one of the two sees the other.
//!
//! Decision: `docs/decisions/038-siw-quirks.md`

use std::collections::HashSet;

use super::cq::{Completions, State};
use super::device::{BATCH, CompletionCalls, Device, Work};
use super::record::Record;
use super::tag::{Name, Side, Tag};
use crate::completion::Status;

/// Where one queue of a queue pair reports its completions.
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
    /// Flushes the requests that the device will not flush. The queue pair is in
    /// ERR. On such a device every request is signalled, so a request without a
    /// completion was not carried out.
    pub(super) fn flush(&self, record: &Record<D>) {
        self.completions.flush(self, record);
    }
}

impl<D: Device> State<D> {
    /// Flushes as [`End::flush`] describes. Returns whether there was anything to
    /// flush.
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
        let reported: HashSet<u64> = self
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
            if !reported.contains(&tag(slot)) {
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

    /// Stages all completions that the device has.
    fn stage_all(&mut self, calls: &D::Completions) {
        let mut batch = [Work::default(); BATCH];
        // Other queue pairs go on completing. The loop is bounded by the
        // completions that can have been there at its start.
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
