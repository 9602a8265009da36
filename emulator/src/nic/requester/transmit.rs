//! Whose turn it is to send, and splitting requests into packets, within the limits of the
//! responder and the fabric.

use super::super::adapter::Nic;
use super::super::core::Core;
use super::super::late::LateKey;
use super::super::psn;
use super::super::qp::Qp;
use super::Request;
use crate::decode::cqe::Syndrome;
use crate::decode::wqe::{Fence, Opcode};
use crate::fabric::counters::Counter;
use crate::fabric::iba::transport;
use crate::fabric::packet::{Destination, Header, Operation, Packet, PacketFlags, Transmit};
use crate::spec::{PortAddress, QpState, Qpn};

/// Maximum number of packets that one QP sends before it is the next QP's turn.
const TURN: usize = 32;
/// Maximum number of unacknowledged PSNs for which a new packet is sent. A single
/// read may exceed it.
const MAX_UNACKED_PSNS: i32 = 1024;
/// The same for another host. A UDP socket keeps about a hundred packets until the host takes
/// them, and loses the others.
const MAX_UNACKED_PSNS_OF_HOST: i32 = 64;
/// Number of packets within a message after which an ack is requested.
const ACK_INTERVAL: u32 = 64;
/// The same for another host.
const ACK_INTERVAL_OF_HOST: u32 = 16;
/// Maximum number of fetched and not completed requests.
const MAX_REQUESTS: usize = 2048;

/// The turn of a QP to send packets, and what it did.
pub(in crate::nic) struct Turn<'a> {
    tx: &'a mut dyn Transmit,
    /// Maximum number of packets.
    limit: usize,
    /// Number of packets sent.
    pub(in crate::nic) packets: usize,
    /// Whether requests were completed.
    pub(in crate::nic) completed: bool,
    /// Whether there is more to send, now or once there is room.
    pub(in crate::nic) has_more: bool,
}

impl<'a> Turn<'a> {
    /// Returns a turn to send at most `limit` packets.
    pub(in crate::nic) fn new(tx: &'a mut dyn Transmit, limit: usize) -> Self {
        Self {
            tx,
            limit,
            packets: 0,
            completed: false,
            has_more: false,
        }
    }

    /// Returns whether one more packet, to this QP, can be sent. If not, the turn ends.
    pub(in crate::nic) fn continues(&mut self, to: Destination) -> bool {
        self.has_more = self.packets == self.limit || !self.tx.has_room(to);
        !self.has_more
    }
}

impl Nic {
    /// Lets the ready QPs send packets in turn.
    pub(in crate::nic) fn transmit(&mut self, tx: &mut dyn Transmit, budget: usize) -> bool {
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
            let mut turn = Turn::new(tx, left.min(TURN));
            // Responses go first, so that they do not wait behind requests that the
            // peer cannot accept.
            qp.send_responses(&mut self.core, &mut turn);
            while !turn.has_more
                && qp.has_request(&mut self.core, &mut turn)
                && qp.send_packet(&mut self.core, &mut turn)
            {}
            qp.raise_drained(&self.core);
            left -= turn.packets;
            worked |= turn.packets > 0 || turn.completed;
            // The round ends when none of the waiting QPs has room.
            let is_blocked = turn.has_more && turn.packets == 0;
            idle_turns = if is_blocked { idle_turns + 1 } else { 0 };
            if turn.has_more {
                qp.make_ready(&mut self.core);
            }
        }
        worked
    }
}

impl Qp {
    /// Adds the QP to the list of QPs with something to send.
    pub(in crate::nic) fn make_ready(&mut self, core: &mut Core) {
        if !self.is_ready {
            self.is_ready = true;
            core.ready.push_back(self.qpn.0);
        }
    }

    /// Sends a packet. Drops it without a header, that is, without a known destination,
    /// and if the port is down. Returns `false` if there is no room; the turn then ends.
    pub(in crate::nic) fn send(
        &self,
        core: &mut Core,
        turn: &mut Turn<'_>,
        header: Option<Header>,
        payload: Vec<u8>,
    ) -> bool {
        let reaches = core.devices.reaches(self.device, self.attr.port);
        match header {
            Some(header) if reaches => {
                let at = header.source;
                let packet = Packet { header, payload };
                let octets = packet.octets();
                if let Err(packet) = turn.tx.send(packet) {
                    core.recycle(packet.payload);
                    turn.has_more = true;
                    return false;
                }
                core.options.counters.sent(at, octets);
            }
            _ => {
                if !reaches {
                    core.count(self.port(), Counter::Discarded);
                }
                core.recycle(payload);
            }
        }
        turn.packets += 1;
        true
    }

    /// Returns whether the request at the cursor can send a packet now.
    #[inline]
    fn has_request(&mut self, core: &mut Core, turn: &mut Turn<'_>) -> bool {
        loop {
            if !matches!(self.state, QpState::Rts | QpState::Sqd) || self.sq.waits_after_rnr_nak {
                return false;
            }
            if self.sq.cursor == self.sq.requests.len() {
                let posted = self.sq.fetch != self.sq.producer;
                if self.state != QpState::Rts || !posted || self.sq.requests.len() >= MAX_REQUESTS {
                    return false;
                }
                self.fetch_request(core);
            }
            if !core.late_keys.is_empty() {
                match self.sq.requests[self.sq.cursor].fence {
                    Fence::None => core.overtake_late_keys(self.qpn.0),
                    // A fence waits for the changes before it.
                    _ => _ = self.change_late_keys(core),
                }
                if self.sq.cursor >= self.sq.requests.len() {
                    return false;
                }
            }
            let request = &self.sq.requests[self.sq.cursor];
            if request.failure.is_some() {
                // It fails when it is the oldest; later requests do not start.
                turn.completed |= self.retire(core);
                return false;
            }
            if request.packets > 0 {
                return !self.must_wait(request);
            }
            if self.fence_blocks(request) {
                return false;
            }
            if request.umr.is_some() && core.nasty.key_delay().is_some() {
                core.late_keys.push(LateKey::new(self.qpn.0, core.now));
                self.sq.cursor += 1;
                continue;
            }
            if !self.change_key(core, self.sq.cursor) {
                continue;
            }
            self.sq.cursor += 1;
            turn.completed |= self.retire(core);
        }
    }

    /// Executes the changes of keys that are late. Returns whether there were any.
    pub(in crate::nic) fn change_late_keys(&mut self, core: &mut Core) -> bool {
        core.late_keys.retain(|late| late.qpn != self.qpn.0);
        let mut changed = false;
        for at in 0..self.sq.cursor.min(self.sq.requests.len()) {
            if self.sq.requests[at].umr.is_some() {
                changed = true;
                self.change_key(core, at);
            }
        }
        if changed {
            self.retire(core);
            self.make_ready(core);
        }
        changed
    }

    /// Returns whether a request must wait for responses to earlier requests.
    fn must_wait(&self, request: &Request) -> bool {
        let oldest = self
            .sq
            .requests
            .front()
            .map_or(request.first_psn, Request::unacked);
        let next = psn::add(request.first_psn, self.sq.packet);
        if self.sq.cursor > 0 || !request.has_response_data() {
            let unacked = psn::distance(next, oldest);
            let most = match self.destination().is_other_host() {
                true => MAX_UNACKED_PSNS_OF_HOST,
                false => MAX_UNACKED_PSNS,
            };
            if unacked >= most {
                return true;
            }
        }
        if self.sq.packet > 0 {
            return false;
        }
        let allowed = usize::from(self.attr.max_rd_atomic.max(1));
        self.fence_blocks(request)
            || (request.has_response_data() && self.outstanding_reads() >= allowed)
    }

    fn fence_blocks(&self, request: &Request) -> bool {
        match request.fence {
            Fence::None | Fence::Small => false,
            Fence::Reads => self.outstanding_reads() > 0,
            Fence::Strong => self.sq.cursor > 0,
        }
    }

    /// Executes the request at position `at` if it changes a memory key, once. Returns
    /// `false` if that failed; the request has then failed.
    fn change_key(&mut self, core: &mut Core, at: usize) -> bool {
        let user = self.key_user();
        let request = &mut self.sq.requests[at];
        let key = u32::from_be_bytes(request.immediate);
        match request.umr.take() {
            Some(umr) if !core.change_key(user, key, &umr, &request.entries) => {
                request.failure = Some(Syndrome::WindowBind);
                false
            }
            _ => true,
        }
    }

    /// Returns the number of reads and atomics before the cursor that are not
    /// complete.
    fn outstanding_reads(&self) -> usize {
        self.sq
            .requests
            .iter()
            .take(self.sq.cursor)
            .filter(|request| request.has_response_data())
            .count()
    }

    /// Sends the packet at the cursor. Returns `false` at the end of the turn.
    fn send_packet(&mut self, core: &mut Core, turn: &mut Turn<'_>) -> bool {
        let mtu = self.mtu();
        let request = &self.sq.requests[self.sq.cursor];
        let to = match &request.datagram {
            Some(datagram) => datagram.destination(),
            None => self.destination(),
        };
        if !turn.continues(to) {
            return false;
        }
        let mut payload = core.take_buffer();
        let number = if request.has_response_data() {
            request.progress
        } else {
            self.sq.packet
        };
        let offset = number * mtu;
        let is_last = request.has_response_data() || number + 1 == request.packets;
        let header = to
            .port
            .map(|peer| self.request_header(request, peer, number, is_last));
        if !request.has_response_data() {
            let length = mtu.min(request.length - offset);
            let sges = &request.sges;
            let datagram = request.datagram.as_ref();
            let transport = || header.as_ref().map_or(0, transport::len);
            let network = datagram.and_then(|it| self.network_header(it, transport(), length));
            payload.extend(network.iter().flatten());
            core.place_rest();
            if core
                .gather(sges, self.spec.pd, offset, length, &mut payload)
                .is_err()
            {
                core.recycle(payload);
                self.sq.requests[self.sq.cursor].failure = Some(Syndrome::LocalProtection);
                turn.completed |= self.retire(core);
                return false;
            }
        }
        if !self.send(core, turn, header, payload) {
            return false;
        }
        self.advance(is_last);
        if self.is_reliable() {
            self.start_ack_timer(core);
        } else {
            turn.completed |= self.retire(core);
        }
        true
    }

    /// Moves the cursor behind the packet just sent, which an unreliable QP treats as
    /// acknowledged.
    fn advance(&mut self, is_last: bool) {
        let is_reliable = self.is_reliable();
        let request = &mut self.sq.requests[self.sq.cursor];
        if !is_reliable {
            request.progress += 1;
        }
        let sent = if request.has_response_data() {
            request.packets
        } else {
            self.sq.packet + 1
        };
        let behind = psn::add(request.first_psn, sent);
        if psn::distance(behind, self.sq.sent_psn) > 0 {
            self.sq.sent_psn = behind;
        }
        if is_last {
            self.sq.cursor += 1;
            self.sq.packet = 0;
        } else {
            self.sq.packet += 1;
        }
    }

    fn request_header(
        &self,
        request: &Request,
        peer: PortAddress,
        number: u32,
        is_last: bool,
    ) -> Header {
        let operation = match request.operation {
            Some(Opcode::Read) => Operation::ReadRequest,
            Some(opcode) if opcode.is_atomic() => Operation::AtomicRequest,
            Some(Opcode::Write | Opcode::WriteImmediate) => Operation::Write,
            _ => Operation::Send,
        };
        let has_immediate = matches!(
            request.operation,
            Some(Opcode::SendImmediate | Opcode::WriteImmediate)
        );
        let mut flags = PacketFlags::empty();
        flags.set(
            PacketFlags::FIRST,
            request.has_response_data() || number == 0,
        );
        flags.set(PacketFlags::LAST, is_last);
        flags.set(PacketFlags::IMMEDIATE, is_last && has_immediate);
        let invalidates = request.operation == Some(Opcode::SendInvalidate);
        flags.set(PacketFlags::INVALIDATE, is_last && invalidates);
        flags.set(PacketFlags::SOLICITED, is_last && request.solicited);
        let interval = match peer.host() {
            Some(_) => ACK_INTERVAL_OF_HOST,
            None => ACK_INTERVAL,
        };
        let ack_request = is_last || number % interval == interval - 1;
        flags.set(PacketFlags::ACK_REQUEST, ack_request && self.is_reliable());
        // A retransmitted read requests only the remaining data.
        let skip = if request.has_response_data() {
            number * self.mtu()
        } else {
            0
        };
        let mut header = self.header(peer, operation, psn::add(request.first_psn, number));
        header.flags = flags;
        header.immediate = request.immediate;
        header.remote_address = request.remote.address.wrapping_add(u64::from(skip));
        header.key = request.remote.key;
        header.length = request.length - skip;
        if let Some(operands) = request.atomic {
            header.atomic = [operands.swap_add, operands.compare];
            header.atomic_compare = request.operation == Some(Opcode::AtomicCompareSwap);
        }
        if let Some(datagram) = &request.datagram {
            self.address(&mut header, datagram);
        }
        header
    }

    /// Returns a header for a packet to the connected peer, with all other fields
    /// empty.
    pub(in crate::nic) fn header(
        &self,
        peer: PortAddress,
        operation: Operation,
        psn: u32,
    ) -> Header {
        Header {
            source: self.port(),
            destination: peer,
            source_qpn: self.qpn,
            destination_qpn: Qpn(self.attr.dest_qpn),
            source_lid: self.port_identity.lid,
            service_level: if self.port_identity.ethernet {
                self.port_identity.network(self.attr.path.sgid_index)
            } else {
                self.attr.path.sl
            },
            psn,
            route: self.route,
            ..Header::empty(self.spec.service, operation)
        }
    }
}
