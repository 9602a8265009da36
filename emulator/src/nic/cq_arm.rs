//! Arming a CQ for an event.
//!
//! The arm doorbell contains a sequence number, the number of events that software
//! has read. The device accepts an arm only if this is the number of events that
//! it has delivered: an arm from before the last event is stale.
//!
//! An arm fires at once if there are completions past its consumer index, unless an
//! event was already delivered for them: the CQ context keeps the last index that
//! was notified (`cqc.last_notified_index`). So a program that reads an event, arms,
//! and only then polls gets one event per completion.
//!
//! A CQ that ignores overruns does not need its consumer record between arms, so software
//! may leave the record behind. It must hold the index of the arm when the arm is rung.
//! With the exact view, an arm beside another index is a violation; in mode `arms`, the
//! device takes the index from the record.

use super::core::Core;
use super::cq::{Armed, INDEX_MASK, was_armed};
use super::memory;
use crate::decode::doorbell::{ArmWord, parse_arm};
use crate::spec::{Cqn, DoorbellView, UarPage};

impl Core {
    /// Handles a store at the arm offset of a page.
    pub(super) fn arm_doorbell(&mut self, page: UarPage, bytes: [u8; 8]) {
        let by_register = self.nasty.arms_by_register();
        match self.options.view {
            DoorbellView::Exact => {
                // All CQs of a page are armed at one offset: if two threads store,
                // only the last store is seen.
                if self.arm_checked(page, bytes) {
                    let named = by_register.then_some(parse_arm(bytes).1);
                    self.scan_arms(Some(page), named);
                }
            }
            _ if by_register => {
                // This store may have overwritten those of other CQs.
                let named = self.arm_named(page, bytes);
                self.scan_arms(Some(page), named);
            }
            DoorbellView::Register | DoorbellView::Records => self.scan_arms(Some(page), None),
        }
    }

    /// Arms the CQ that a store names, as the store says. Returns its number.
    fn arm_named(&mut self, page: UarPage, bytes: [u8; 8]) -> Option<u32> {
        let (word, number) = parse_arm(bytes);
        self.cqs.get(number).filter(|cq| cq.spec.uar == page)?;
        self.arm(Cqn(number), ArmWord::parse(word));
        Some(number)
    }

    /// Reads the arm words of the CQs of a page, or of all CQs, except one.
    pub(super) fn scan_arms(&mut self, page: Option<UarPage>, except: Option<u32>) {
        let mut found = Vec::new();
        for (cqn, cq) in self.cqs.iter() {
            if page.is_some_and(|page| page != cq.spec.uar) || except == Some(cqn) {
                continue;
            }
            match memory::load_be32(cq.spec.dbrec + 4) {
                Ok(word) if was_armed(word) => found.push((Cqn(cqn), ArmWord::parse(word))),
                _ => {}
            }
        }
        for (cqn, arm) in found {
            // The word of an arm that has fired stays in the record, so a stale
            // sequence number is not a software error here.
            self.arm(cqn, arm);
        }
    }

    /// Handles an arm doorbell exactly. Returns whether it is valid.
    fn arm_checked(&mut self, page: UarPage, bytes: [u8; 8]) -> bool {
        let (word, number) = parse_arm(bytes);
        let Some(cq) = self.cqs.get(number).filter(|cq| cq.spec.uar == page) else {
            self.violation(format!(
                "arm doorbell for CQ {number:#x}, which does not use this page"
            ));
            return false;
        };
        let arm = ArmWord::parse(word);
        let record = memory::load_be32(cq.spec.dbrec + 4);
        // Another thread may have armed the CQ again since the store was seen. Its
        // doorbell follows, or has overwritten this one.
        if record.is_ok_and(|record| ArmWord::parse(record).is_after(arm)) {
            return true;
        }
        if record != Ok(word) {
            self.violation(format!(
                "arm doorbell {word:#010x} of CQ {number:#x} differs from the arm record {record:x?}"
            ));
            return false;
        }
        let consumed = memory::load_be32(cq.spec.dbrec).map(|index| index & INDEX_MASK);
        let unrecorded = cq.spec.ignore_overrun && consumed != Ok(arm.consumer);
        let ahead = cq.pending(arm.consumer) > cq.spec.cqe_count && !cq.failed;
        if ahead {
            self.violation(format!(
                "arm of CQ {number:#x} with consumer index {:#x}: there is no such completion yet",
                arm.consumer
            ));
        }
        if unrecorded {
            self.violation(format!(
                "arm of CQ {number:#x}, which ignores overruns, with consumer index {:#x}: its \
                 doorbell record has {consumed:x?}",
                arm.consumer
            ));
        }
        if !self.arm(Cqn(number), arm) {
            self.violations.count_stale_arm();
            self.note(|| {
                format!(
                    "arm of CQ {number:#x}: stale sequence number {}",
                    arm.sequence
                )
            });
        }
        true
    }

    /// Arms a CQ. Fires at once if there are completions for which no event was
    /// delivered. Returns `false` for a stale arm.
    fn arm(&mut self, cqn: Cqn, arm: ArmWord) -> bool {
        let Some(cq) = self.cqs.get_mut(cqn.0) else {
            return true;
        };
        if u32::from(arm.sequence) != cq.events_delivered & 3 {
            return false;
        }
        let from_record = self.nasty.arms_by_register() && cq.spec.ignore_overrun;
        let consumer = match memory::load_be32(cq.spec.dbrec) {
            Ok(recorded) if from_record => recorded,
            _ => arm.consumer,
        };
        let (armed, upto) = if arm.solicited_only {
            (Armed::Solicited, cq.last_solicited)
        } else {
            (Armed::Any, cq.producer)
        };
        // An arm for any completion is not replaced by one for solicited completions.
        if cq.armed != Some(Armed::Any) {
            cq.armed = Some(armed);
        }
        let unconsumed = upto.wrapping_sub(consumer) & INDEX_MASK;
        let unnotified = upto.wrapping_sub(cq.notified).cast_signed() > 0;
        if unnotified && unconsumed != 0 && unconsumed <= cq.spec.cqe_count {
            self.deliver_event(cqn);
        }
        true
    }
}
