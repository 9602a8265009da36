//! Responses: acks, NAKs, read and atomic responses, and the completions that
//! follow (IBA 9.7.5.1 and 9.9.2).

use super::super::core::Core;
use super::super::psn;
use super::super::qp::Qp;
use super::super::responder::aeth;
use super::super::scatter_gather::SgeError;
use super::{MAX_INLINE_RESPONSE, MAX_INLINE_RESPONSE_32, Request};
use crate::decode::cqe::{Cqe, CqeOpcode, Failed, Success, Syndrome};
use crate::fabric::counters::Counter;
use crate::fabric::packet::{Header, Operation};
use crate::spec::QpState;

impl Qp {
    /// Handles a response from the responder.
    pub(in crate::nic) fn handle_response(
        &mut self,
        core: &mut Core,
        header: &Header,
        data: &[u8],
    ) {
        if !matches!(self.state, QpState::Rts | QpState::Sqd) {
            return;
        }
        // Responses before the oldest unacknowledged PSN are stale; those past the
        // last PSN sent are invalid.
        let Some(oldest) = self.sq.unacked() else {
            return;
        };
        let is_stale = psn::distance(header.psn, oldest) < 0;
        if is_stale || psn::distance(header.psn, self.sq.sent_psn) >= 0 {
            return;
        }
        match header.operation {
            Operation::Acknowledge => self.handle_ack(core, header),
            Operation::ReadResponse | Operation::AtomicResponse => {
                self.handle_read_response(core, header, data);
            }
            _ => {}
        }
        self.raise_drained(core);
    }

    fn handle_ack(&mut self, core: &mut Core, header: &Header) {
        let ack = aeth::Ack::parse(header.syndrome);
        if ack == aeth::Ack::Acknowledge {
            self.ack_up_to(core, header.psn);
            return;
        }
        // A NAK acknowledges everything before its PSN.
        self.ack_up_to(core, psn::add(header.psn, psn::MASK));
        if self.sq.unacked() != Some(header.psn) {
            return;
        }
        match ack {
            aeth::Ack::Acknowledge => {}
            aeth::Ack::RnrNak(code) => self.handle_rnr_nak(core, code),
            aeth::Ack::SequenceError => self.retry_or_fail(core, Counter::SequenceNaks),
            aeth::Ack::InvalidRequest => {
                self.fail_oldest(core, Syndrome::RemoteInvalidRequest);
            }
            aeth::Ack::AccessError => self.fail_oldest(core, Syndrome::RemoteAccess),
            aeth::Ack::OperationalError => self.fail_oldest(core, Syndrome::RemoteOperation),
            aeth::Ack::Reserved => self.fail_oldest(core, Syndrome::BadResponse),
        }
    }

    /// Records that the responder has executed everything up to `upto`.
    fn ack_up_to(&mut self, core: &mut Core, upto: u32) {
        let mut progress = false;
        let mut lost_response = false;
        for request in &mut self.sq.requests {
            let acked = psn::distance(upto, request.first_psn) + 1;
            if acked <= 0 || request.packets == 0 {
                // Local operations in between involve no responder.
                if request.packets == 0 && request.failure.is_none() {
                    continue;
                }
                break;
            }
            if request.has_response_data() {
                if request.progress == request.packets {
                    continue;
                }
                // Responses arrive in order: a later one means that a response to
                // this request was lost.
                lost_response = acked > request.progress.cast_signed();
                break;
            }
            let acked = acked.cast_unsigned().min(request.packets);
            if acked > request.progress {
                request.progress = acked;
                progress = true;
            }
        }
        if progress {
            self.reset_retries(core);
        }
        self.retire(core);
        if lost_response && !self.sq.retransmits {
            self.retry_or_fail(core, Counter::ImpliedNaks);
            self.sq.retransmits = true;
        }
    }

    /// Handles the data of a read, or the original value of an atomic, which is in
    /// the byte order of the hosts (the same on both sides of the fabric).
    fn handle_read_response(&mut self, core: &mut Core, header: &Header, data: &[u8]) {
        let original = header.atomic[0].to_ne_bytes();
        let is_atomic = header.operation == Operation::AtomicResponse;
        let data = if is_atomic { &original } else { data };
        self.ack_up_to(core, psn::add(header.psn, psn::MASK));
        let mtu = self.mtu();
        let room = self.inline_response_limit(core);
        let Some(request) = self.sq.requests.front_mut() else {
            return;
        };
        let is_expected = request.has_response_data() && request.atomic.is_some() == is_atomic;
        if !is_expected || request.unacked() != header.psn {
            return;
        }
        let offset = request.progress * mtu;
        if data.len() as u32 != mtu.min(request.length - offset) {
            return self.fail_oldest(core, Syndrome::BadResponse);
        }
        let is_small = request.length > 0 && request.length as usize <= room;
        if is_small && request.signalled {
            let mut inline = [0; MAX_INLINE_RESPONSE];
            inline[..data.len()].copy_from_slice(data);
            request.inline = Some(inline);
        } else {
            match core.scatter(&request.sges, self.spec.pd, offset, data) {
                Ok(()) => {}
                Err(SgeError::Protection) => {
                    return self.fail_oldest(core, Syndrome::LocalProtection);
                }
                Err(SgeError::TooShort) => return self.fail_oldest(core, Syndrome::LocalLength),
            }
        }
        request.progress += 1;
        self.reset_retries(core);
        self.retire(core);
    }

    /// Resets the retry counters, since the responder has made progress.
    fn reset_retries(&mut self, core: &mut Core) {
        self.sq.reset_retry_counters(&self.attr);
        self.sq.retransmits = false;
        if std::mem::take(&mut self.sq.waits_after_rnr_nak) {
            // The packet that the RNR NAK refused was sent twice and has been
            // executed. The packets sent after it may be lost.
            self.go_back(core);
        }
        self.timer.stop();
        self.start_ack_timer(core);
        // Requests that had to wait may be sent now.
        self.make_ready(core);
    }

    /// Completes the finished requests, oldest first. Returns whether there were any.
    pub(in crate::nic) fn retire(&mut self, core: &mut Core) -> bool {
        let mut completed = false;
        while let Some(request) = self.sq.requests.front() {
            if let Some(syndrome) = request.failure {
                self.fail_oldest(core, syndrome);
                return true;
            }
            let is_local = request.packets == 0;
            if request.umr.is_some() && self.sq.cursor > 0 {
                // The change of the key is late.
                break;
            }
            if request.progress < request.packets || (is_local && self.sq.cursor == 0) {
                break;
            }
            let Some(request) = self.sq.pop_front() else {
                break;
            };
            completed = true;
            if request.signalled {
                self.complete_success(core, &request);
            }
        }
        // Retransmission skips the packets that are acknowledged by now.
        if let Some(request) = self.sq.requests.get(self.sq.cursor) {
            self.sq.packet = self.sq.packet.max(request.progress);
        }
        if completed && self.sq.unacked().is_none() {
            self.timer.stop();
        }
        completed
    }

    /// Fails the oldest request and with it the send queue; for a reliable
    /// connection the whole QP.
    pub(super) fn fail_oldest(&mut self, core: &mut Core, syndrome: Syndrome) {
        if let Some(request) = self.sq.pop_front() {
            self.complete_failed(core, request.counter, request.opcode, syndrome);
        }
        self.enter_send_error(core);
    }

    fn complete_success(&self, core: &mut Core, request: &Request) {
        let mut cqe = Cqe::success(&Success {
            opcode: CqeOpcode::Request,
            wqe_opcode: request.opcode,
            qpn: self.qpn.0,
            resource: self.cqe_resource(false),
            wqe_counter: request.counter,
            byte_count: if request.has_response_data() {
                request.length
            } else {
                0
            },
            immediate: [0; 4],
            remote_qpn: 0,
            has_grh: false,
            service_level: 0,
            source_lid: 0,
            solicited: false,
            timestamp: core.timestamp(),
        });
        if let Some(inline) = &request.inline {
            let data = &inline[..request.length as usize];
            if self.send_cqe_size(core) == 128 {
                cqe.inline_64(data);
            } else {
                cqe.inline_32(data);
            }
        }
        core.complete(self.spec.send_cq, self.port(), cqe);
    }

    /// Completes a failed request, whether it is signalled or not.
    pub(in crate::nic) fn complete_failed(
        &self,
        core: &mut Core,
        counter: u16,
        wqe_opcode: u8,
        syndrome: Syndrome,
    ) {
        let cqe = Cqe::failed(&Failed {
            opcode: CqeOpcode::RequestError,
            wqe_opcode,
            qpn: self.qpn.0,
            resource: self.cqe_resource(false),
            wqe_counter: counter,
            syndrome,
        });
        core.complete(self.spec.send_cq, self.port(), cqe);
    }

    /// Returns how many bytes of a response can be scattered to the CQE; 0 for none.
    fn inline_response_limit(&self, core: &Core) -> usize {
        let options = &core.options;
        if !options.scatter_to_cqe || !self.spec.scatter_responses {
            return 0;
        }
        match self.send_cqe_size(core) {
            128 if options.scatter_to_large_cqes => MAX_INLINE_RESPONSE,
            64 => MAX_INLINE_RESPONSE_32,
            _ => 0,
        }
    }

    fn send_cqe_size(&self, core: &Core) -> u32 {
        let cq = core.cqs.get(self.spec.send_cq.0);
        cq.map_or(64, |cq| cq.spec.cqe_size)
    }
}
