//! Received packets that are not executed: from other senders, and executed before.

use super::super::core::Core;
use super::super::psn;
use super::super::qp::Qp;
use super::response::{Read, Response};
use crate::fabric::counters::Counter;
use crate::fabric::packet::{Header, Operation, PacketFlags};
use crate::spec::{AsyncEvent, QpState, network};

/// Maximum number of replayed reads, beyond max_dest_rd_atomic.
const MAX_REPLAYED_READS: usize = 16;

impl Qp {
    /// Returns whether a packet comes from the connected peer.
    pub(in crate::nic) fn is_from_peer(&self, header: &Header) -> bool {
        // The packets of connections do not name their queue pair on a network.
        let is_named = header.source_qpn.0 == self.attr.dest_qpn;
        (is_named || header.source.host().is_some())
            && self.is_for_this_port(header)
            && self.peer == Some(header.source)
            && self.is_of_own_version(header)
    }

    /// Returns whether a packet has the RoCE version of this QP's GID. The versions are
    /// protocols of their own (an EtherType, a UDP port), and a connected QP takes
    /// packets of one only.
    fn is_of_own_version(&self, header: &Header) -> bool {
        let own = self.port_identity.network(self.attr.path.sgid_index);
        let is_v1 = |it: u8| it == network::ROCE_V1;
        !self.port_identity.ethernet || is_v1(own) == is_v1(header.service_level)
    }

    pub(super) fn is_for_this_port(&self, header: &Header) -> bool {
        header.destination == self.port()
    }

    /// Raises `COMM_EST` for the first packet of a connection that arrives before RTS.
    pub(super) fn raise_comm_est(&mut self, core: &Core) {
        if !self.responder.established {
            self.responder.established = true;
            if self.state == QpState::Rtr {
                self.raise(core, AsyncEvent::CommEst);
            }
        }
    }

    /// Handles a packet that was executed before: its response was lost or is late.
    pub(super) fn handle_duplicate(&mut self, core: &mut Core, header: &Header) {
        core.count(self.port(), Counter::Duplicates);
        let ack_request = header.flags.contains(PacketFlags::ACK_REQUEST);
        match header.operation {
            Operation::ReadRequest => self.replay_read(core, header),
            Operation::AtomicRequest => self.replay_atomic(core, header),
            Operation::Send | Operation::Write if ack_request => {
                let executed = self.responder.executed();
                self.queue_ack(core, executed);
            }
            _ => {}
        }
    }

    fn replay_read(&mut self, core: &mut Core, header: &Header) {
        let mut open = 0;
        for response in &mut self.responder.responses {
            let Response::Read(read) = response else {
                continue;
            };
            open += 1;
            let into = psn::distance(header.psn, read.first_psn);
            if (0..read.packets.cast_signed()).contains(&into) {
                // The response is in progress: restart it at the requested packet.
                read.sent = into.cast_unsigned();
                return;
            }
        }
        let max = usize::from(self.attr.max_dest_rd_atomic) + MAX_REPLAYED_READS;
        if open < max && self.check_read(core, header).is_ok() {
            self.queue_read_response(core, header, true);
        }
    }

    pub(super) fn queue_read_response(&mut self, core: &mut Core, header: &Header, replayed: bool) {
        self.responder.responses.push_back(Response::Read(Read {
            first_psn: header.psn,
            packets: header.length.div_ceil(self.mtu()).max(1),
            sent: 0,
            address: header.remote_address,
            key: header.key,
            length: header.length,
            msn: self.responder.msn,
            replayed,
        }));
        self.make_ready(core);
    }
}
