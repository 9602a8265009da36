//! Congestion notifications (CNP, annex A17.9): the receiver of a packet that a router has
//! marked notifies its sender. This NIC, as a sender, counts them and sends no slower.

use super::super::core::Core;
use super::super::qp::Qp;
use super::response::Response;
use crate::fabric::counters::Counter;
use crate::fabric::packet::{Header, Operation};
use crate::spec::{Nanos, Service};

/// The shortest time between two notifications of a queue pair (`min_time_between_cnps` of a
/// ConnectX), in nanoseconds.
const INTERVAL: Nanos = 4_000;
/// The traffic class of notifications (`cnp_dscp` of a ConnectX: 48).
const CLASS: u8 = 48 << 2;

impl Qp {
    /// Notifies the peer that one of its packets was marked.
    pub(in crate::nic) fn notify_sender(&mut self, core: &mut Core) {
        core.count(self.port(), Counter::CongestionMarks);
        let responses = &self.responder.responses;
        let waits = || {
            responses
                .iter()
                .any(|it| matches!(it, Response::Notification))
        };
        if core.now < self.responder.next_notification || !self.receives() || waits() {
            return;
        }
        self.responder.next_notification = core.now.saturating_add(INTERVAL);
        self.responder.responses.push_back(Response::Notification);
        self.make_ready(core);
        core.count(self.port(), Counter::NotificationsSent);
    }

    pub(in crate::nic) fn receive_notification(&mut self, core: &mut Core, header: &Header) {
        if self.is_from_peer(header) {
            core.count(self.port(), Counter::NotificationsIgnored);
        }
    }

    pub(super) fn notification_header(&self) -> Option<Header> {
        let mut header = self.header(self.peer?, Operation::Notification, 0);
        header.service = Service::Rc;
        header.route.traffic_class = CLASS;
        Some(header)
    }
}
