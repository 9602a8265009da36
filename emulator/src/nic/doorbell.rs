//! Doorbells: stores to doorbell pages, and the work that they start.
//!
//! A doorbell is the first 8 bytes of the control segment of the last posted WQE. It
//! only marks the QP as ready; [`Nic::work`] executes the requests.
//!
//! Decision: `docs/decisions/004-doorbell-per-uar-page.md`

use super::adapter::Nic;
use super::core::Core;
use super::memory;
use super::qp::Qp;
use super::spec::{DoorbellView, QpState, UarWrite};
use crate::decode::wqe::{Control, WQEBB};
use crate::limits::{BF_OFFSET, CQ_ARM_OFFSET};

/// Size of a BlueFlame buffer in bytes. BlueFlame alternates between the two of a
/// register.
const HALF: u16 = 0x100;

/// The QPs that ring on one page. A QP is bound to a page, as in the device's QP
/// context, and may use any register of the page.
#[derive(Debug, Default)]
pub(super) struct PageUsers {
    qpns: Vec<u32>,
    /// The QP that rang last, by register (at multiples of 0x200).
    last: [Option<u32>; REGISTERS],
}

/// Number of registers that fit in a page.
const REGISTERS: usize = 8;

impl PageUsers {
    pub(super) fn add(&mut self, qpn: u32) {
        self.qpns.push(qpn);
    }

    /// Removes a QP. Returns whether none is left.
    pub(super) fn remove(&mut self, qpn: u32) -> bool {
        self.qpns.retain(|user| *user != qpn);
        for last in &mut self.last {
            *last = last.filter(|user| *user != qpn);
        }
        self.qpns.is_empty()
    }

    /// Records which QP rang a register. Returns whether another QP rang it before.
    fn record_ring(&mut self, offset: u16, qpn: u32) -> bool {
        let register = usize::from(offset / (2 * HALF));
        let last = self
            .last
            .get_mut(register)
            .and_then(|last| last.replace(qpn));
        last.is_some_and(|last| last != qpn)
    }
}

impl Nic {
    /// Handles a store to a doorbell page.
    pub(crate) fn doorbell(&mut self, write: &UarWrite) {
        if self.has_failed(write.page.context) {
            return;
        }
        if u32::from(write.offset) == CQ_ARM_OFFSET {
            self.core.arm_doorbell(write.page, write.bytes);
        } else if u32::from(write.offset) >= BF_OFFSET {
            // Stores further into a buffer belong to a BlueFlame copy.
            if write.offset.is_multiple_of(HALF) {
                self.send_doorbell(write);
            }
        } else {
            self.core.violation(format!(
                "store at offset {:#x} of a doorbell page",
                write.offset
            ));
        }
        self.process_failures();
    }

    fn send_doorbell(&mut self, write: &UarWrite) {
        match self.core.options.view {
            DoorbellView::Exact => self.ring_checked(write),
            DoorbellView::Register => {
                let Some(users) = self.pages.get(&write.page) else {
                    return;
                };
                for qpn in &users.qpns {
                    if let Some(qp) = self.qps.get_mut(*qpn) {
                        qp.scan_record(&mut self.core);
                    }
                }
            }
            DoorbellView::Records => {}
        }
    }

    fn ring_checked(&mut self, write: &UarWrite) {
        let bytes = write.bytes;
        let mut control = [0; 16];
        control[..8].copy_from_slice(&bytes);
        let control_segment = Control::parse(&control);
        let core = &mut self.core;
        let Some(qp) = self.qps.get_mut(control_segment.qpn) else {
            return core.violation(format!(
                "doorbell for QP {:#x}, which does not exist",
                control_segment.qpn
            ));
        };
        if qp.spec.register.page != write.page {
            return core.violation(format!(
                "doorbell of QP {:#x} on page {} instead of {}",
                control_segment.qpn, write.page.page, qp.spec.register.page.page
            ));
        }
        if let Some(users) = self.pages.get_mut(&write.page)
            && users.record_ring(write.offset, control_segment.qpn)
        {
            core.violations.count_shared_register();
            core.note(|| {
                format!(
                    "QP {:#x} rings a register that another QP rang last",
                    control_segment.qpn
                )
            });
        }
        match qp.check_doorbell(&control_segment, bytes) {
            Ok(producer) => qp.post_sends(core, producer),
            Err(text) => {
                core.violation(format!(
                    "doorbell {bytes:02x?} of QP {:#x}: {text}",
                    control_segment.qpn
                ));
                let first = memory::load_be32(qp.spec.sq_buf);
                if first.is_err() || qp.posted_sends().is_err() {
                    qp.fail_fatally(core);
                }
            }
        }
    }

    /// Reads all doorbell records, for the lenient view.
    pub(super) fn scan_records(&mut self) -> bool {
        self.core.scan_arms(None);
        let before = self.core.ready.len();
        for (_, qp) in self.qps.iter_mut() {
            qp.scan_record(&mut self.core);
        }
        self.core.ready.len() > before
    }
}

impl Qp {
    /// Returns the new producer counter that a doorbell announces. Returns an error if
    /// the doorbell does not agree with the ring and the doorbell record.
    fn check_doorbell(&self, control_segment: &Control, bytes: [u8; 8]) -> Result<u16, String> {
        if self.spec.sq_wqebb_count == 0 {
            return Err("the QP has no send queue".into());
        }
        let mut ring = [0; 8];
        let slot = u32::from(control_segment.index) & (self.spec.sq_wqebb_count - 1);
        let at = self.spec.sq_buf + u64::from(slot) * WQEBB as u64;
        memory::read(at, &mut ring).map_err(|fault| fault.to_string())?;
        if ring != bytes {
            return Err(format!("the WQE at index {slot} begins with {ring:02x?}"));
        }
        let record = self.posted_sends().map_err(|fault| fault.to_string())?;
        let producer = control_segment.index.wrapping_add(control_segment.wqebbs());
        if control_segment.segments == 0 || record != producer {
            return Err(format!(
                "the WQE ends at {producer:#x}, but the doorbell record is {record:#x}"
            ));
        }
        if !matches!(
            self.state,
            QpState::Rts | QpState::Sqd | QpState::Sqe | QpState::Err
        ) {
            return Err(format!("the QP is in {:?}", self.state));
        }
        let ahead = producer.wrapping_sub(self.sq.oldest());
        if u32::from(ahead) > self.spec.sq_wqebb_count {
            return Err(format!(
                "{ahead} WQEBBs posted in a ring of {}",
                self.spec.sq_wqebb_count
            ));
        }
        Ok(producer)
    }

    /// Takes the producer counter from the doorbell record, since the doorbell may
    /// have been overwritten unseen.
    fn scan_record(&mut self, core: &mut Core) {
        let running = matches!(
            self.state,
            QpState::Rts | QpState::Sqd | QpState::Sqe | QpState::Err
        );
        if !running || self.spec.sq_wqebb_count == 0 {
            return;
        }
        let Ok(producer) = self.posted_sends() else {
            return self.fail_fatally(core);
        };
        if producer == self.sq.producer {
            return;
        }
        let ahead = producer.wrapping_sub(self.sq.oldest());
        if u32::from(ahead) > self.spec.sq_wqebb_count {
            core.violation(format!(
                "QP {:#x}: {ahead} WQEBBs posted in a ring of {}",
                self.qpn.0, self.spec.sq_wqebb_count
            ));
            // The WQEs cannot be identified: the send queue is lost.
            self.sq.producer = self.sq.fetch;
            return self.fail_fatally(core);
        }
        self.post_sends(core, producer);
    }

    fn post_sends(&mut self, core: &mut Core, producer: u16) {
        self.sq.producer = producer;
        if matches!(self.state, QpState::Sqe | QpState::Err) {
            self.flush_sends(core);
        } else {
            self.make_ready(core);
        }
    }
}
