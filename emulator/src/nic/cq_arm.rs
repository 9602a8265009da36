//! Arming a CQ for an event.
//!
//! The arm doorbell carries a sequence number, the count of events software
//! has read. The device honours an arm only if the number is that of the
//! events it has delivered: an arm from before the latest event is stale.
//!
//! An arm fires at once for completions that lie past the consumer index it
//! names, unless an event has told of them already: the CQ context keeps the
//! last index notified (`cqc.last_notified_index`). So a program that reads
//! an event, arms, and polls only then gets one event per completion.

use super::core::Core;
use super::cq::{Armed, was_armed};
use super::memory;
use super::spec::{Cqn, DoorbellView, UarPage};
use crate::decode::doorbell::{ArmWord, parse_arm};

impl Core {
    /// A store at the arm offset of a page.
    pub(super) fn arm_doorbell(&mut self, page: UarPage, bytes: [u8; 8]) {
        match self.options.view {
            DoorbellView::Exact => {
                // All CQs of a page arm at one place: of the stores of two
                // threads only the last is still there to be seen.
                if self.arm_exactly(page, bytes) {
                    self.scan_arms(Some(page));
                }
            }
            DoorbellView::Register | DoorbellView::Records => self.scan_arms(Some(page)),
        }
    }

    /// Looks at the arm words of the CQs of a page, or of all.
    pub(super) fn scan_arms(&mut self, page: Option<UarPage>) {
        let mut found = Vec::new();
        for (cqn, cq) in self.cqs.iter() {
            if page.is_some_and(|page| page != cq.spec.uar) {
                continue;
            }
            match memory::load_be32(cq.spec.dbrec + 4) {
                Ok(word) if was_armed(word) => found.push((Cqn(cqn), ArmWord::parse(word))),
                _ => {}
            }
        }
        for (cqn, arm) in found {
            // The word of an arm that has fired stays in the record: here a
            // stale number says nothing about software.
            self.arm(cqn, arm);
        }
    }

    /// Answers whether the doorbell is one.
    fn arm_exactly(&mut self, page: UarPage, bytes: [u8; 8]) -> bool {
        let (word, number) = parse_arm(bytes);
        let Some(cq) = self.cqs.get(number).filter(|cq| cq.spec.uar == page) else {
            self.violation(format!(
                "arm doorbell names CQ {number:#x}: not on this page"
            ));
            return false;
        };
        let arm = ArmWord::parse(word);
        let record = memory::load_be32(cq.spec.dbrec + 4);
        // Another thread may have armed the CQ again since the store was seen. Its
        // doorbell is still to come, or was the later of two stores.
        if record.is_ok_and(|record| ArmWord::parse(record).is_after(arm)) {
            return true;
        }
        if record != Ok(word) {
            self.violation(format!(
                "arm doorbell {word:#010x} of CQ {number:#x} differs from its record {record:x?}"
            ));
            return false;
        }
        let ahead = cq.pending(arm.consumer) > cq.spec.cqe_count && !cq.failed;
        if ahead {
            self.violation(format!(
                "arm of CQ {number:#x} with consumer {:#x}: no such completion yet",
                arm.consumer
            ));
        }
        if !self.arm(Cqn(number), arm) {
            self.violations.count_stale_arm();
            self.note(|| format!("arm of CQ {number:#x}: stale number {}", arm.sequence));
        }
        true
    }

    /// Arms, and fires at once for what no event has told of yet.
    /// Answers `false` for a stale arm.
    fn arm(&mut self, cqn: Cqn, arm: ArmWord) -> bool {
        let Some(cq) = self.cqs.get_mut(cqn.0) else {
            return true;
        };
        if u32::from(arm.sequence) != cq.fired & 3 {
            return false;
        }
        let (armed, upto) = if arm.solicited_only {
            (Armed::Solicited, cq.notifying)
        } else {
            (Armed::Any, cq.producer)
        };
        // An arm for any completion is not weakened by one for solicited ones.
        if cq.armed != Some(Armed::Any) {
            cq.armed = Some(armed);
        }
        let unseen = upto.wrapping_sub(arm.consumer) & super::cq::INDEX_MASK;
        let untold = upto.wrapping_sub(cq.notified).cast_signed() > 0;
        if untold && unseen != 0 && unseen <= cq.spec.cqe_count {
            self.fire(cqn);
        }
        true
    }
}
