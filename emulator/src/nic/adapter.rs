//! The NIC itself: what goes in and when it runs.

use super::core::Core;
use super::doorbell::PageUsers;
use super::number::Table;
use super::options::{Mishaps, Nanos, NicOptions, Progress, Trace};
use super::qp::Qp;
use super::spec::{CqSpec, Cqn, DoorbellView, EventSink, QpSpec, Qpn, SrqSpec, Srqn, UarPage};
use super::violations::Violations;
use crate::fabric::packet::{Packet, Transmit};
use std::collections::HashMap;

/// Packets one QP may send before the next one has its turn.
const TURN: usize = 32;
/// How long a queue whose posts ring no doorbell may go unlooked at: the
/// receive queue of a QP in error.
const FLUSH_INTERVAL: Nanos = 1_000_000;
/// The same for every record in the lenient view.
const RECORDS_INTERVAL: Nanos = 20_000;

/// The NIC of one process, with all its emulated devices.
pub struct Nic {
    pub(super) core: Core,
    pub(super) qps: Table<Box<Qp>>,
    /// Who rings on which doorbell page.
    pub(super) pages: HashMap<UarPage, PageUsers>,
}

impl Nic {
    /// A NIC without any object.
    #[must_use]
    pub(crate) fn new(options: NicOptions, events: Box<dyn EventSink>) -> Self {
        // The slot is the upper byte of every QP number of this process.
        let first = u32::from(options.slot) << 16 | 1;
        let most = options.limits.max_qp;
        Self {
            core: Core::new(options, events),
            qps: Table::new(first, most),
            pages: HashMap::new(),
        }
    }

    /// Reports everything that crosses the border to software from now on.
    pub fn set_trace(&mut self, trace: Box<dyn Trace + Send>) {
        self.core.trace = Some(trace);
    }

    /// Who is asked from now on for what happens to this NIC; `None` for nothing.
    pub fn set_mishaps(&mut self, mishaps: Option<Box<dyn Mishaps + Send>>) {
        self.core.mishaps = mishaps;
    }

    /// What software did that hardware would not forgive.
    #[must_use]
    pub fn violations(&self) -> &Violations {
        &self.core.violations
    }

    /// What a queue pair was created with.
    #[must_use]
    pub fn qp_spec(&self, qp: Qpn) -> Option<&QpSpec> {
        self.qps.get(qp.0).map(|qp| &qp.spec)
    }

    /// What a completion queue was created with.
    #[must_use]
    pub fn cq_spec(&self, cq: Cqn) -> Option<&CqSpec> {
        self.core.cqs.get(cq.0).map(|cq| &cq.spec)
    }

    /// What a shared receive queue was created with.
    #[must_use]
    pub fn srq_spec(&self, srq: Srqn) -> Option<&SrqSpec> {
        self.core.srqs.get(srq.0).map(|srq| &srq.spec)
    }

    /// Takes a packet from the fabric. Most answers leave with the next
    /// `Nic::work`, so that one acknowledges many.
    pub(crate) fn receive(&mut self, packet: Packet, _tx: &mut dyn Transmit) {
        let Packet { header, payload } = packet;
        let to = header.destination;
        if !self.core.devices.reaches(to.device, to.port) {
            self.core.note(|| "packet for a port that is down".into());
        } else if let Some(qp) = self.qps.get_mut(header.destination_qpn.0) {
            qp.take_packet(&mut self.core, &header, &payload);
        } else {
            self.core
                .note(|| format!("packet for QP {:#x}: none here", header.destination_qpn.0));
        }
        self.core.recycle(payload);
        self.settle();
    }

    /// Does what is due: expired timers, answers, requests, at most `budget`
    /// packets of them.
    pub(crate) fn work(&mut self, now: Nanos, tx: &mut dyn Transmit, budget: usize) -> Progress {
        self.core.now = now;
        let mut worked = false;
        if self.core.options.view == DoorbellView::Records {
            worked |= self.scan_records();
        }
        self.core.timers.begin(now, &mut self.qps);
        while let Some(qpn) = self.core.timers.expire(now, &mut self.qps) {
            if let Some(qp) = self.qps.get_mut(qpn) {
                qp.time_is_up(&mut self.core, tx);
                worked = true;
            }
        }
        worked |= self.flush_posted_receives();
        worked |= self.transmit(tx, budget);
        self.settle();
        self.core.timers.begin(now, &mut self.qps);
        Progress {
            worked,
            next_deadline: self.next_deadline(now),
        }
    }

    /// Whether the next `Nic::work` has something to do at once.
    #[must_use]
    pub fn has_work(&self) -> bool {
        !self.core.ready.is_empty() || self.core.timers.has_unstarted()
    }

    /// Gives every ready QP its turns.
    fn transmit(&mut self, tx: &mut dyn Transmit, budget: usize) -> bool {
        let mut left = budget;
        let mut worked = false;
        let mut idle_turns = 0;
        while left > 0 && idle_turns < self.core.ready.len() {
            let Some(qpn) = self.core.ready.pop_front() else {
                break;
            };
            let Some(qp) = self.qps.get_mut(qpn) else {
                continue;
            };
            qp.is_ready = false;
            let turn = qp.transmit(&mut self.core, tx, left.min(TURN));
            left -= turn.packets;
            worked |= turn.packets > 0 || turn.completed;
            if turn.has_more {
                qp.make_ready(&mut self.core);
            }
            // When none of those that wait has room, the round is over.
            let is_blocked = turn.has_more && turn.packets == 0;
            idle_turns = if is_blocked { idle_turns + 1 } else { 0 };
        }
        worked
    }

    /// Tells the QPs of CQs that overran, and those that are to fail.
    pub(super) fn settle(&mut self) {
        while let Some(qpn) = self.core.failing.pop() {
            if let Some(qp) = self.qps.get_mut(qpn) {
                qp.fail_fatally(&mut self.core);
            }
        }
        while let Some(cqn) = self.core.overrun.pop() {
            for (_, qp) in self.qps.iter_mut() {
                if qp.spec.send_cq.0 == cqn || qp.spec.recv_cq.0 == cqn {
                    qp.fail_fatally(&mut self.core);
                }
            }
        }
    }

    fn next_deadline(&self, now: Nanos) -> Option<Nanos> {
        let timer = self.core.timers.next();
        let flush = (!self.core.flushing.is_empty()).then_some(now + FLUSH_INTERVAL);
        let lenient = self.core.options.view == DoorbellView::Records;
        let scan = lenient.then_some(now + RECORDS_INTERVAL);
        [timer, flush, scan].into_iter().flatten().min()
    }
}
