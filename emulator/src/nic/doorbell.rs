//! Doorbells: stores on the doorbell pages, and what they start.
//!
//! A doorbell is the first 8 bytes of the control segment of the last WQE
//! posted. It only makes work ready; [`Nic::work`] does it.

use super::adapter::Nic;
use super::core::Core;
use super::memory;
use super::qp::Qp;
use super::spec::{DoorbellView, QpState, UarWrite};
use crate::decode::wqe::{Control, WQEBB};
use crate::limits::{BF_OFFSET, CQ_ARM_OFFSET};

/// Bytes of a register's half; BlueFlame alternates between the two.
const HALF: u16 = 0x100;

/// The QPs that ring the registers of one page. A QP is tied to a page, as in
/// the device's QP context; which register of it software takes is its own
/// affair.
#[derive(Debug, Default)]
pub(super) struct PageUsers {
    qpns: Vec<u32>,
    /// Who rang last, by register (their offsets are multiples of 0x200).
    last: [Option<u32>; REGISTERS],
}

/// Registers that a page has room for.
const REGISTERS: usize = 8;

impl PageUsers {
    pub(super) fn add(&mut self, qpn: u32) {
        self.qpns.push(qpn);
    }

    /// Takes a QP off; answers whether none is left.
    pub(super) fn remove(&mut self, qpn: u32) -> bool {
        self.qpns.retain(|user| *user != qpn);
        for last in &mut self.last {
            *last = last.filter(|user| *user != qpn);
        }
        self.qpns.is_empty()
    }

    /// Remembers who rang; answers whether it was another one than before.
    fn rung_by_another(&mut self, offset: u16, qpn: u32) -> bool {
        let register = usize::from(offset / (2 * HALF));
        let last = self
            .last
            .get_mut(register)
            .and_then(|last| last.replace(qpn));
        last.is_some_and(|last| last != qpn)
    }
}

impl Nic {
    /// A store seen on a doorbell page.
    pub(crate) fn doorbell(&mut self, write: &UarWrite) {
        if self.has_failed(write.page.context) {
            return;
        }
        if u32::from(write.offset) == CQ_ARM_OFFSET {
            self.core.arm_doorbell(write.page, write.bytes);
        } else if u32::from(write.offset) >= BF_OFFSET {
            // What lies further into a half belongs to a BlueFlame copy.
            if write.offset.is_multiple_of(HALF) {
                self.send_doorbell(write);
            }
        } else {
            self.core
                .violation(format!("store at {:#x} of a doorbell page", write.offset));
        }
        self.settle();
    }

    fn send_doorbell(&mut self, write: &UarWrite) {
        match self.core.options.view {
            DoorbellView::Exact => self.ring_exactly(write),
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

    fn ring_exactly(&mut self, write: &UarWrite) {
        let bytes = write.bytes;
        let mut control = [0; 16];
        control[..8].copy_from_slice(&bytes);
        let rung = Control::parse(&control);
        let core = &mut self.core;
        let Some(qp) = self.qps.get_mut(rung.qpn) else {
            return core.violation(format!("doorbell names QP {:#x}: there is none", rung.qpn));
        };
        if qp.spec.register.page != write.page {
            return core.violation(format!(
                "doorbell of QP {:#x} on page {} instead of {}",
                rung.qpn, write.page.page, qp.spec.register.page.page
            ));
        }
        if let Some(users) = self.pages.get_mut(&write.page)
            && users.rung_by_another(write.offset, rung.qpn)
        {
            core.violations.count_shared_register();
            core.note(|| format!("QP {:#x} rings a register another QP rang last", rung.qpn));
        }
        match qp.check_doorbell(&rung, bytes) {
            Ok(producer) => qp.post_sends(core, producer),
            Err(text) => {
                core.violation(format!(
                    "doorbell {bytes:02x?} of QP {:#x}: {text}",
                    rung.qpn
                ));
                let first = memory::load_be32(qp.spec.sq_buf);
                if first.is_err() || qp.posted_sends().is_err() {
                    qp.fail_fatally(core);
                }
            }
        }
    }

    /// The lenient view: every record may have changed.
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
    /// The new producer that a doorbell announces, if all that it says agrees
    /// with the ring and the record.
    fn check_doorbell(&self, rung: &Control, bytes: [u8; 8]) -> Result<u16, String> {
        if self.spec.sq_wqebb_count == 0 {
            return Err("it has no send queue".into());
        }
        let mut ring = [0; 8];
        let slot = u32::from(rung.index) & (self.spec.sq_wqebb_count - 1);
        let at = self.spec.sq_buf + u64::from(slot) * WQEBB as u64;
        memory::read(at, &mut ring).map_err(|fault| fault.to_string())?;
        if ring != bytes {
            return Err(format!("the WQE at {slot} begins {ring:02x?}"));
        }
        let record = self.posted_sends().map_err(|fault| fault.to_string())?;
        let producer = rung.index.wrapping_add(rung.wqebbs());
        if rung.segments == 0 || record != producer {
            return Err(format!(
                "its WQE ends at {producer:#x}, the record says {record:#x}"
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
                "{ahead} blocks posted in a ring of {}",
                self.spec.sq_wqebb_count
            ));
        }
        Ok(producer)
    }

    /// Takes what the record says when its doorbell may have gone unseen.
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
                "QP {:#x}: {ahead} blocks posted in a ring of {}",
                self.qpn.0, self.spec.sq_wqebb_count
            ));
            // What they are cannot be told: the queue is lost.
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
