//! Answers: acknowledges, NAKs and read responses, and the completions they
//! bring (IBA 9.7.5.1 and 9.9.2).

use super::super::core::Core;
use super::super::gather::Refused;
use super::super::psn;
use super::super::qp::Qp;
use super::super::responder::aeth;
use super::super::spec::QpState;
use super::{INLINE_ANSWER, INLINE_ANSWER_32, Request};
use crate::decode::cqe::{Cqe, CqeOpcode, Failed, Good, Syndrome};
use crate::fabric::packet::{Header, Operation};

impl Qp {
    /// Takes an answer from the responder.
    pub(in crate::nic) fn take_answer(&mut self, core: &mut Core, header: &Header, data: &[u8]) {
        if !matches!(self.state, QpState::Rts | QpState::Sqd) {
            return;
        }
        // Stale answers lie before what is unanswered, wild ones behind what
        // was ever sent.
        let Some(oldest) = self.sq.unanswered() else {
            return;
        };
        let is_stale = psn::distance(header.psn, oldest) < 0;
        if is_stale || psn::distance(header.psn, self.sq.sent_psn) >= 0 {
            return;
        }
        match header.operation {
            Operation::Acknowledge => self.take_acknowledge(core, header),
            Operation::ReadResponse | Operation::AtomicResponse => {
                self.take_response(core, header, data);
            }
            _ => {}
        }
        self.tell_drained(core);
    }

    fn take_acknowledge(&mut self, core: &mut Core, header: &Header) {
        let answer = aeth::Answer::parse(header.syndrome);
        if answer == aeth::Answer::Acknowledge {
            self.acknowledge_through(core, header.psn);
            return;
        }
        // A NAK acknowledges everything before its PSN.
        self.acknowledge_through(core, psn::add(header.psn, psn::MASK));
        if self.sq.unanswered() != Some(header.psn) {
            return;
        }
        match answer {
            aeth::Answer::Acknowledge => {}
            aeth::Answer::ReceiverNotReady(code) => self.wait_for_receiver(core, code),
            aeth::Answer::SequenceError => self.repeat_or_give_up(core),
            aeth::Answer::InvalidRequest => {
                self.fail_oldest(core, Syndrome::RemoteInvalidRequest);
            }
            aeth::Answer::AccessError => self.fail_oldest(core, Syndrome::RemoteAccess),
            aeth::Answer::OperationalError => self.fail_oldest(core, Syndrome::RemoteOperation),
            aeth::Answer::Reserved => self.fail_oldest(core, Syndrome::BadResponse),
        }
    }

    /// Everything up to `upto` has been executed by the responder.
    fn acknowledge_through(&mut self, core: &mut Core, upto: u32) {
        let mut progress = false;
        let mut lost_response = false;
        for request in &mut self.sq.requests {
            let answered = psn::distance(upto, request.first_psn) + 1;
            if answered <= 0 || request.packets == 0 {
                // Local operations in between are none of the responder's.
                if request.packets == 0 && request.failure.is_none() {
                    continue;
                }
                break;
            }
            if request.awaits_data() {
                if request.progress == request.packets {
                    continue;
                }
                // Answers come in order: a later one means that a response
                // to this request was lost.
                lost_response = answered > request.progress.cast_signed();
                break;
            }
            let answered = answered.cast_unsigned().min(request.packets);
            if answered > request.progress {
                request.progress = answered;
                progress = true;
            }
        }
        if progress {
            self.made_progress(core);
        }
        self.retire(core);
        if lost_response && !self.sq.repeats {
            self.repeat_or_give_up(core);
            self.sq.repeats = true;
        }
    }

    /// Takes data that were read, or the original value of an atomic: in the
    /// byte order of the hosts, which is the same on both sides of this fabric.
    fn take_response(&mut self, core: &mut Core, header: &Header, data: &[u8]) {
        let original = header.atomic[0].to_ne_bytes();
        let is_atomic = header.operation == Operation::AtomicResponse;
        let data = if is_atomic { &original } else { data };
        self.acknowledge_through(core, psn::add(header.psn, psn::MASK));
        let mtu = self.mtu();
        let room = self.inline_answer_room(core);
        let Some(request) = self.sq.requests.front_mut() else {
            return;
        };
        let is_awaited = request.awaits_data() && request.atomic.is_some() == is_atomic;
        if !is_awaited || request.unanswered() != header.psn {
            return;
        }
        let offset = request.progress * mtu;
        if data.len() as u32 != mtu.min(request.length - offset) {
            return self.fail_oldest(core, Syndrome::BadResponse);
        }
        let is_small = request.length > 0 && request.length as usize <= room;
        if is_small && request.signalled {
            let mut inline = [0; INLINE_ANSWER];
            inline[..data.len()].copy_from_slice(data);
            request.inline = Some(inline);
        } else {
            match core.scatter(&request.list, self.spec.pd, offset, data) {
                Ok(()) => {}
                Err(Refused::Protection) => {
                    return self.fail_oldest(core, Syndrome::LocalProtection);
                }
                Err(Refused::TooShort) => return self.fail_oldest(core, Syndrome::LocalLength),
            }
        }
        request.progress += 1;
        self.made_progress(core);
        self.retire(core);
    }

    /// The responder is alive: all retries are given again.
    fn made_progress(&mut self, core: &mut Core) {
        self.sq.refill_retries(&self.attr);
        self.sq.repeats = false;
        if std::mem::take(&mut self.sq.waits_for_receiver) {
            // The packet that was to wait has arrived otherwise: it had been
            // sent twice. What was sent behind it may be lost.
            self.go_back(core);
        }
        self.timer.stop();
        self.watch_for_answers(core);
        // There may be room for requests that had to wait.
        self.make_ready(core);
    }

    /// Completes what is done, oldest first. Answers whether anything was.
    pub(in crate::nic) fn retire(&mut self, core: &mut Core) -> bool {
        let mut completed = false;
        while let Some(request) = self.sq.requests.front() {
            if let Some(syndrome) = request.failure {
                self.fail_oldest(core, syndrome);
                return true;
            }
            let is_local = request.packets == 0;
            if request.progress < request.packets || (is_local && self.sq.cursor == 0) {
                break;
            }
            let Some(request) = self.sq.pop_front() else {
                break;
            };
            completed = true;
            if request.signalled {
                self.complete_good(core, &request);
            }
        }
        // Sending that went back need not repeat what is answered by now.
        if let Some(request) = self.sq.requests.get(self.sq.cursor) {
            self.sq.packet = self.sq.packet.max(request.progress);
        }
        if completed && self.sq.unanswered().is_none() {
            self.timer.stop();
        }
        completed
    }

    /// Fails the oldest request, and the send queue with it; of a reliable
    /// connection the whole QP.
    pub(super) fn fail_oldest(&mut self, core: &mut Core, syndrome: Syndrome) {
        if let Some(request) = self.sq.pop_front() {
            self.complete_failed(core, request.counter, request.opcode, syndrome);
        }
        self.enter_send_error(core);
    }

    fn complete_good(&self, core: &mut Core, request: &Request) {
        let mut cqe = Cqe::good(&Good {
            opcode: CqeOpcode::Request,
            wqe_opcode: request.opcode,
            qpn: self.qpn.0,
            resource: self.cqe_resource(false),
            wqe_counter: request.counter,
            byte_count: if request.awaits_data() {
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
            timestamp: core.stamp(),
        });
        if let Some(inline) = &request.inline {
            let data = &inline[..request.length as usize];
            if self.send_cqe_size(core) == 128 {
                cqe.inline_64(data);
            } else {
                cqe.inline_32(data);
            }
        }
        core.complete(self.spec.send_cq, cqe);
    }

    /// A failed request completes whether it was signalled or not.
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
        core.complete(self.spec.send_cq, cqe);
    }

    /// How many bytes of an answer may be delivered inside the CQE; 0 for none.
    fn inline_answer_room(&self, core: &Core) -> usize {
        let options = &core.options;
        if !options.scatter_to_cqe || !self.spec.scatter_answers {
            return 0;
        }
        match self.send_cqe_size(core) {
            128 if options.scatter_to_large_cqes => INLINE_ANSWER,
            64 => INLINE_ANSWER_32,
            _ => 0,
        }
    }

    fn send_cqe_size(&self, core: &Core) -> u32 {
        let cq = core.cqs.get(self.spec.send_cq.0);
        cq.map_or(64, |cq| cq.spec.cqe_size)
    }
}
