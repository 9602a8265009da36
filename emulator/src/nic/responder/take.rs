//! Taking packets: to whom they belong, and whether it is their turn.

use super::super::core::Core;
use super::super::psn;
use super::super::qp::Qp;
use super::super::spec::{AsyncEvent, PortAddress, QpState, Service};
use super::aeth;
use super::answer::{Answer, Read};
use crate::fabric::packet::{Header, Operation, PacketFlags};

/// Reads that are answered again, beyond those the requester may have open.
const REPEATED_READS: usize = 16;

impl Qp {
    /// A packet for this QP.
    pub(in crate::nic) fn take_packet(&mut self, core: &mut Core, header: &Header, data: &[u8]) {
        if self.spec.service == Service::Ud {
            return self.take_datagram(core, header, data);
        }
        if !self.is_from_peer(header) {
            return core.note(|| format!("packet from {header:?} dropped"));
        }
        if self.spec.service == Service::Uc {
            return self.take_unreliable(core, header, data);
        }
        match header.operation {
            Operation::Acknowledge | Operation::ReadResponse | Operation::AtomicResponse => {
                self.take_answer(core, header, data);
            }
            Operation::Send
            | Operation::Write
            | Operation::ReadRequest
            | Operation::AtomicRequest => self.take_request_packet(core, header, data),
        }
    }

    fn is_from_peer(&self, header: &Header) -> bool {
        header.source_qpn.0 == self.attr.dest_qpn
            && self.is_for_this_port(header)
            && self.peer == Some(header.source)
    }

    pub(super) fn is_for_this_port(&self, header: &Header) -> bool {
        let here = PortAddress {
            device: self.device,
            port: self.attr.port,
        };
        header.destination == here
    }

    /// A connection's first packet before RTS tells software that the peer
    /// is there.
    pub(super) fn notice_peer(&mut self, core: &Core) {
        if !self.responder.established {
            self.responder.established = true;
            if self.state == QpState::Rtr {
                self.raise(core, AsyncEvent::CommEst);
            }
        }
    }

    fn take_request_packet(&mut self, core: &mut Core, header: &Header, data: &[u8]) {
        if !self.receives() {
            return;
        }
        self.notice_peer(core);
        match psn::distance(header.psn, self.responder.expected) {
            0 => {
                self.responder.refused = false;
                self.execute(core, header, data);
            }
            1.. => {
                if !self.responder.refused {
                    self.responder.refused = true;
                    let expected = self.responder.expected;
                    self.owe_refusal(core, expected, aeth::Answer::SequenceError);
                }
            }
            _ => self.take_duplicate(core, header),
        }
    }

    /// A packet that was executed before: its answer was lost, or is late.
    fn take_duplicate(&mut self, core: &mut Core, header: &Header) {
        let asks = header.flags.contains(PacketFlags::ACK_REQUEST);
        match header.operation {
            Operation::ReadRequest => self.repeat_read(core, header),
            Operation::AtomicRequest => self.repeat_atomic(core, header),
            Operation::Send | Operation::Write if asks => {
                let executed = self.responder.executed();
                self.owe_acknowledge(core, executed);
            }
            _ => {}
        }
    }

    fn repeat_read(&mut self, core: &mut Core, header: &Header) {
        let mut open = 0;
        for answer in &mut self.responder.answers {
            let Answer::Read(read) = answer else { continue };
            open += 1;
            let into = psn::distance(header.psn, read.first_psn);
            if (0..read.packets.cast_signed()).contains(&into) {
                // It is being answered: begin again where the requester asks.
                read.sent = into.cast_unsigned();
                return;
            }
        }
        let most = usize::from(self.attr.max_dest_rd_atomic) + REPEATED_READS;
        if open < most && self.read_is_allowed(core, header) {
            self.owe_read(core, header, true);
        }
    }

    pub(super) fn owe_read(&mut self, core: &mut Core, header: &Header, repeated: bool) {
        self.responder.answers.push_back(Answer::Read(Read {
            first_psn: header.psn,
            packets: header.length.div_ceil(self.mtu()).max(1),
            sent: 0,
            address: header.remote_address,
            key: header.key,
            length: header.length,
            msn: self.responder.msn,
            repeated,
        }));
        self.make_ready(core);
    }
}
