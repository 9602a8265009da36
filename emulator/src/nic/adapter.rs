//! The NIC: its inputs, and its rounds of work.

use super::core::Core;
use super::doorbell::PageUsers;
use super::failures::FailingQp;
use super::number::Table;
use super::options::{FaultInjector, NicOptions, Progress, earlier};
use super::qp::Qp;
use super::violations::Violations;
use crate::decode::text::TraceWriter;
use crate::fabric::counters::Counters;
use crate::fabric::packet::{Operation, Packet, Transmit};
use crate::limits::MAX_QP;
use crate::spec::{
    CqSpec, Cqn, DoorbellView, EventSink, Nanos, QpSpec, Qpn, Service, SrqSpec, Srqn, UarPage,
};
use std::collections::BTreeMap;

/// Interval in nanoseconds at which the receive queues of QPs in error are
/// checked, since their posts ring no doorbell.
const FLUSH_INTERVAL: Nanos = 1_000_000;
/// Interval in nanoseconds at which all doorbell records are read in the lenient
/// view.
const RECORDS_INTERVAL: Nanos = 20_000;

/// The NIC of one process, with all its emulated devices.
pub struct Nic {
    pub(super) core: Core,
    pub(super) qps: Table<Box<Qp>>,
    /// The queues that use each doorbell page.
    pub(super) pages: BTreeMap<UarPage, PageUsers>,
}

impl Nic {
    /// Returns a NIC without any objects.
    #[must_use]
    pub(crate) fn new(options: NicOptions, events: Box<dyn EventSink>) -> Self {
        // The slot is the upper byte of every QP number of this process.
        let first = u32::from(options.slot) << 16 | 1;
        let max = options.limits.max_qp;
        let core = Core::new(options, events);
        let qps = match core.nasty.reuses_qp_numbers() {
            true => Table::new(first, max),
            false => Table::circular(first, max, MAX_QP),
        };
        Self {
            core,
            qps,
            pages: BTreeMap::new(),
        }
    }

    /// Sets the trace that records all WQEs and CQEs from now on.
    pub fn set_trace(&mut self, trace: TraceWriter) {
        self.core.trace = Some(trace);
    }

    /// Sets what injects faults into this NIC; `None` for no faults.
    pub fn set_fault_injector(&mut self, fault_injector: Option<Box<dyn FaultInjector + Send>>) {
        self.core.fault_injector = fault_injector;
    }

    /// Returns the driver's violations of the device's contract.
    #[must_use]
    pub fn violations(&self) -> &Violations {
        &self.core.violations
    }

    /// Returns the attributes with which a QP was created.
    #[must_use]
    pub fn qp_spec(&self, qp: Qpn) -> Option<&QpSpec> {
        self.qps.get(qp.0).map(|qp| &qp.spec)
    }

    /// Returns the attributes with which a CQ was created.
    #[must_use]
    pub fn cq_spec(&self, cq: Cqn) -> Option<&CqSpec> {
        self.core.cqs.get(cq.0).map(|cq| &cq.spec)
    }

    /// Returns the attributes with which an SRQ was created.
    #[must_use]
    pub fn srq_spec(&self, srq: Srqn) -> Option<&SrqSpec> {
        self.core.srqs.get(srq.0).map(|srq| &srq.spec)
    }

    /// Returns the counters of the ports.
    pub(crate) fn counters(&self) -> &Counters {
        &self.core.options.counters
    }

    /// Takes a packet from the fabric. Most responses are sent by the next
    /// `Nic::work`, so that one ack covers many packets. Returns a management packet,
    /// which is not for a QP of the NIC.
    pub(crate) fn receive(&mut self, packet: Packet) -> Option<Packet> {
        let (core, header) = (&mut self.core, &packet.header);
        let is_management = header.operation == Operation::Management;
        let qp = self.qps.get_mut(header.destination_qpn.0);
        let (to, data) = (header.destination, &packet.payload[..]);
        let reaches = core.devices.reaches(to.device, to.port);
        if reaches {
            core.options.counters.received(to, packet.octets());
        }
        match qp {
            _ if !reaches => core.note(|| "packet for a port that is down".into()),
            _ if is_management => return Some(packet),
            None => {
                core.note(|| format!("packet for QP {:#x}: no such QP", header.destination_qpn.0));
            }
            Some(qp) if header.operation == Operation::Notification => {
                qp.receive_notification(core, header);
            }
            Some(qp) if qp.spec.service != header.service => {
                let (own, theirs) = (qp.spec.service, header.service);
                core.note_dropped(header, || {
                    format!("it is of the service {theirs:?}, the queue pair of {own:?}")
                });
            }
            Some(qp) if header.service == Service::Ud => qp.receive_datagram(core, header, data),
            Some(qp) if !qp.is_from_peer(header) => {
                let peer = qp.attr.dest_qpn;
                core.note_dropped(header, || {
                    format!("the queue pair takes packets of QP {peer:#x} only, from its port, with its RoCE version")
                });
            }
            Some(qp) => {
                if header.is_marked() {
                    qp.notify_sender(core);
                }
                match header.operation.is_response() {
                    _ if header.service == Service::Uc => qp.receive_unreliable(core, header, data),
                    true => qp.handle_response(core, header, data),
                    false => qp.receive_request(core, header, data),
                }
            }
        }
        core.recycle(packet.payload);
        self.process_failures();
        None
    }

    /// Does the work that is due: expired timers, responses and requests. Sends
    /// at most `budget` packets.
    pub(crate) fn work(&mut self, now: Nanos, tx: &mut dyn Transmit, budget: usize) -> Progress {
        self.core.now = now;
        let mut worked = false;
        if self.core.options.view == DoorbellView::Records {
            worked |= self.scan_records();
        }
        self.core.timers.begin(now, &mut self.qps);
        while let Some(qpn) = self.core.timers.expire(now, &mut self.qps) {
            if let Some(qp) = self.qps.get_mut(qpn) {
                qp.timer_expired(&mut self.core, tx);
                worked = true;
            }
        }
        worked |= self.core.place_old_rest();
        worked |= self.flush_posted_receives();
        worked |= self.transmit(tx, budget);
        worked |= self.change_late_keys();
        worked |= self.core.deliver_late_events(worked);
        self.process_failures();
        self.core.report_stale_uses();
        self.core.timers.begin(now, &mut self.qps);
        Progress {
            worked,
            next_deadline: self.next_deadline(now),
        }
    }

    /// Returns whether the next `Nic::work` has something to do at once.
    #[must_use]
    pub fn has_work(&self) -> bool {
        !self.core.ready.is_empty() || self.core.timers.has_unstarted()
    }

    /// Executes the changes of memory keys that are due. Returns whether there are late
    /// ones.
    fn change_late_keys(&mut self) -> bool {
        let now = self.core.now;
        let mut worked = false;
        while let Some(qpn) = self.core.take_late_key(now) {
            if let Some(qp) = self.qps.get_mut(qpn) {
                qp.change_late_keys(&mut self.core);
            }
            worked = true;
        }
        worked | self.core.age_late_keys()
    }

    /// Moves the QPs to error that must fail, and those whose CQ overran.
    #[inline]
    pub(super) fn process_failures(&mut self) {
        if !self.core.failing.is_empty() || !self.core.overrun.is_empty() {
            self.fail_qps();
        }
    }

    #[cold]
    fn fail_qps(&mut self) {
        while let Some(FailingQp { qpn, cause }) = self.core.failing.pop() {
            if let Some(qp) = self.qps.get_mut(qpn) {
                qp.fail_fatally(&mut self.core, &cause);
            }
        }
        while let Some(cqn) = self.core.overrun.pop() {
            for (_, qp) in self.qps.iter_mut() {
                if qp.spec.send_cq.0 == cqn || qp.spec.recv_cq.0 == cqn {
                    let cause = format!("its completion queue {cqn:#x} has failed");
                    qp.fail_fatally(&mut self.core, &cause);
                }
            }
        }
    }

    fn next_deadline(&self, now: Nanos) -> Option<Nanos> {
        let flush = (!self.core.flushing.is_empty()).then_some(now + FLUSH_INTERVAL);
        let lenient = self.core.options.view == DoorbellView::Records;
        let scan = lenient.then_some(now + RECORDS_INTERVAL);
        let keys = self.core.late_keys.iter().map(|late| late.due).min();
        let mut deadline = self.core.timers.next();
        for other in [flush, scan, self.core.late_events.due(), keys] {
            deadline = earlier(deadline, other);
        }
        deadline
    }
}
