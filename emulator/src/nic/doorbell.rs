//! Doorbells: stores to doorbell pages, and the work that they start.
//!
//! A doorbell is the first 8 bytes of the control segment of the last posted WQE. It
//! only marks the QP as ready; [`Nic::work`] executes the requests.
//!
//! Decision: `docs/decisions/004-doorbell-per-uar-page.md`

use super::adapter::Nic;
use super::core::Core;
use super::failures::unreadable;
use super::memory;
use super::qp::Qp;
use crate::decode::wqe::{Control, Opcode, WQEBB};
use crate::limits::{BF_OFFSET, CQ_ARM_OFFSET};
use crate::nasty::policies::IndexSource;
use crate::spec::{DoorbellView, QpState, UarPage, UarWrite};

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

    /// Returns whether another QP rang a register last.
    fn rung_by_other(&self, offset: u16, qpn: u32) -> bool {
        let register = usize::from(offset / (2 * HALF));
        let last = self.last.get(register).copied().flatten();
        last.is_some_and(|last| last != qpn)
    }

    /// Records which QP rang a register. Returns whether another QP rang it before.
    fn record_ring(&mut self, offset: u16, qpn: u32) -> bool {
        let is_shared = self.rung_by_other(offset, qpn);
        if let Some(last) = self.last.get_mut(usize::from(offset / (2 * HALF))) {
            *last = Some(qpn);
        }
        is_shared
    }
}

impl Nic {
    /// Handles a store to a doorbell page.
    pub(crate) fn doorbell(&mut self, write: &UarWrite) {
        if self.has_failed(write.page.context) {
            return;
        }
        match u32::from(write.offset) {
            CQ_ARM_OFFSET => self.core.arm_doorbell(write.page, write.bytes),
            ..BF_OFFSET => self.core.violation(format!(
                "store at offset {:#x} of a doorbell page",
                write.offset
            )),
            // Stores further into a buffer belong to a BlueFlame copy.
            _ if !write.offset.is_multiple_of(HALF) => {}
            _ if self.core.nasty.loses_stores() && self.loses_store(write) => {}
            _ => {
                self.note_copied_nop(write);
                let source = self.core.nasty.index_source(write.page.page);
                match (source, self.core.options.view) {
                    (IndexSource::Register, _) => self.ring_by_register(write),
                    (IndexSource::View, DoorbellView::Exact) => self.ring_checked(write),
                    (IndexSource::Record, _) | (_, DoorbellView::Register) => {
                        self.scan_page(write.page, None);
                    }
                    (IndexSource::View, DoorbellView::Records) => {}
                }
            }
        }
        self.process_failures();
    }

    /// Notes the BlueFlame copy of a NOP. With one that alone asks for a completion, the
    /// kernel's driver tests whether a CPU combines stores to the register
    /// (`mlx5_ib_test_wc`). Everything else is read from the ring, where it is the same: the
    /// rest of a copy may be that of an earlier one, so it takes nothing away either.
    fn note_copied_nop(&mut self, write: &UarWrite) {
        let Some(copy) = write.copy else { return };
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&write.bytes);
        bytes[8..].copy_from_slice(&copy);
        let control = Control::parse(&bytes);
        if control.opcode != Opcode::Nop as u8 {
            return;
        }
        let qp = self.qps.get_mut(control.qpn);
        if let Some(qp) = qp.filter(|qp| qp.spec.register.page == write.page)
            && control.index.wrapping_sub(qp.sq.fetch).cast_signed() >= 0
        {
            qp.sq.copied_nops[usize::from(write.offset / HALF % 2)] = Some(control);
        }
    }

    /// Reads the doorbell records of the QPs of a page, except one.
    fn scan_page(&mut self, page: UarPage, except: Option<u32>) {
        let Some(users) = self.pages.get(&page) else {
            return;
        };
        for qpn in users.qpns.iter().filter(|qpn| Some(**qpn) != except) {
            if let Some(qp) = self.qps.get_mut(*qpn) {
                qp.scan_record(&mut self.core);
            }
        }
    }

    /// Returns whether a mode of the device loses a store to a send register.
    fn loses_store(&mut self, write: &UarWrite) -> bool {
        let Some(users) = self.pages.get_mut(&write.page) else {
            return false;
        };
        let Control { qpn, .. } = control_of(write);
        let is_shared = users.rung_by_other(write.offset, qpn);
        let is_second_half = !write.offset.is_multiple_of(2 * HALF);
        let nasty = &self.core.nasty;
        let is_lost = nasty.loses_store(write.copy.is_some(), is_second_half, is_shared);
        if is_lost || self.core.options.view != DoorbellView::Exact {
            users.record_ring(write.offset, qpn);
        }
        if is_lost {
            self.core
                .note(|| format!("doorbell of QP {qpn:#x} is lost by a mode of --nasty"));
        }
        is_lost
    }

    /// Takes the index of the last WQE from a store, whatever the doorbell record says.
    fn ring_by_register(&mut self, write: &UarWrite) {
        let control = control_of(write);
        let named = self.qps.get_mut(control.qpn);
        let named = named.filter(|qp| qp.spec.register.page == write.page);
        let named = named.map(|qp| qp.advance_to(&mut self.core, &control));
        match (named, self.core.options.view) {
            (Some(()), DoorbellView::Exact) => {}
            (None, DoorbellView::Exact) => self.core.violation(format!(
                "doorbell for QP {:#x}, which does not exist or does not use this page",
                control.qpn
            )),
            // This store may have overwritten those of other QPs. The bytes of a store
            // that is still waiting are not known.
            (named, _) => self.scan_page(write.page, named.map(|()| control.qpn)),
        }
    }

    fn ring_checked(&mut self, write: &UarWrite) {
        let bytes = write.bytes;
        let control_segment = control_of(write);
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
                if let Err(fault) = first.and(qp.posted_sends()) {
                    qp.fail_fatally(core, &unreadable("send ring or doorbell record", fault));
                }
            }
        }
    }

    /// Reads all doorbell records, for the lenient view.
    pub(super) fn scan_records(&mut self) -> bool {
        self.core.scan_arms(None, None);
        let before = self.core.ready.len();
        for (_, qp) in self.qps.iter_mut() {
            qp.scan_record(&mut self.core);
        }
        self.core.ready.len() > before
    }
}

/// Returns the part of the control segment of a WQE that a doorbell consists of.
fn control_of(write: &UarWrite) -> Control {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&write.bytes);
    Control::parse(&bytes)
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
        if !self.takes_sends() {
            return;
        }
        let producer = match self.posted_sends() {
            Ok(producer) => producer,
            Err(fault) => return self.fail_fatally(core, &unreadable("doorbell record", fault)),
        };
        if producer != self.sq.producer {
            self.post_sends(core, producer);
        }
    }

    /// Takes the producer counter from a doorbell, unless a later doorbell was taken
    /// before.
    fn advance_to(&mut self, core: &mut Core, control: &Control) {
        let producer = control.index.wrapping_add(control.wqebbs());
        let is_ahead = producer.wrapping_sub(self.sq.producer).cast_signed() > 0;
        if self.takes_sends() && control.segments > 0 && is_ahead {
            self.post_sends(core, producer);
        }
    }

    fn takes_sends(&self) -> bool {
        let running = matches!(
            self.state,
            QpState::Rts | QpState::Sqd | QpState::Sqe | QpState::Err
        );
        running && self.spec.sq_wqebb_count > 0
    }

    /// Takes the WQEs before a producer counter: sends them, or flushes them in error.
    fn post_sends(&mut self, core: &mut Core, producer: u16) {
        let ahead = producer.wrapping_sub(self.sq.oldest());
        if u32::from(ahead) > self.spec.sq_wqebb_count {
            let ring = self.spec.sq_wqebb_count;
            let cause = format!("{ahead} WQEBBs posted in a ring of {ring}");
            core.violation(format!("QP {:#x}: {cause}", self.qpn.0));
            // The WQEs cannot be identified: the send queue is lost.
            self.sq.producer = self.sq.fetch;
            return self.fail_fatally(core, &cause);
        }
        self.sq.producer = producer;
        if matches!(self.state, QpState::Sqe | QpState::Err) {
            self.flush_sends(core);
        } else {
            self.make_ready(core);
        }
    }
}
