//! Sending what is owed: acknowledges, NAKs, responses to reads and atomics.

use super::super::core::Core;
use super::super::memory;
use super::super::psn;
use super::super::qp::Qp;
use super::super::requester::Turn;
use super::super::spec::{Access, AsyncEvent, Qpn};
use super::aeth;
use crate::fabric::packet::{Header, Operation, Packet, PacketFlags, Transmit};

/// Something owed to the requester.
#[derive(Clone, Copy, Debug)]
pub(in crate::nic) enum Answer {
    /// An acknowledge or NAK.
    Acknowledge {
        psn: u32,
        answer: aeth::Answer,
        msn: u32,
    },
    /// The data of a read.
    Read(Read),
    /// What an atomic found.
    Atomic {
        psn: u32,
        original: u64,
        msn: u32,
        repeated: bool,
    },
}

/// A read being answered.
#[derive(Clone, Copy, Debug)]
pub(in crate::nic) struct Read {
    pub(super) first_psn: u32,
    pub(super) packets: u32,
    pub(super) sent: u32,
    pub(super) address: u64,
    pub(super) key: u32,
    pub(super) length: u32,
    pub(super) msn: u32,
    pub(super) repeated: bool,
}

impl Answer {
    /// Whether it is one of those that the responder promised resources for:
    /// to a read or an atomic, and for the first time. What is repeated is
    /// bounded by itself.
    pub(super) fn holds_resource(&self) -> bool {
        match self {
            Self::Acknowledge { .. } => false,
            Self::Read(Read { repeated, .. }) | Self::Atomic { repeated, .. } => !repeated,
        }
    }
}

impl Qp {
    /// Owes an acknowledge of everything up to `psn`. One that is not sent
    /// yet and last in line is replaced: it says less.
    pub(super) fn owe_acknowledge(&mut self, core: &mut Core, psn: u32) {
        let msn = self.responder.msn;
        let acknowledge = Answer::Acknowledge {
            psn,
            answer: aeth::Answer::Acknowledge,
            msn,
        };
        match self.responder.answers.back_mut() {
            Some(
                last @ Answer::Acknowledge {
                    answer: aeth::Answer::Acknowledge,
                    ..
                },
            ) => {
                *last = acknowledge;
            }
            _ => self.responder.answers.push_back(acknowledge),
        }
        self.make_ready(core);
    }

    /// Owes a NAK for `psn`.
    pub(super) fn owe_refusal(&mut self, core: &mut Core, psn: u32, answer: aeth::Answer) {
        let msn = self.responder.msn;
        self.responder
            .answers
            .push_back(Answer::Acknowledge { psn, answer, msn });
        self.make_ready(core);
    }

    /// Sends answers while there is room; `turn.has_more` when some are left.
    pub(in crate::nic) fn send_answers(
        &mut self,
        core: &mut Core,
        tx: &mut dyn Transmit,
        limit: usize,
        turn: &mut Turn,
    ) {
        while let Some(answer) = self.responder.answers.front().copied() {
            if turn.packets == limit || !tx.has_room(Qpn(self.attr.dest_qpn)) {
                turn.has_more = true;
                return;
            }
            let (header, payload, is_done) = match answer {
                Answer::Acknowledge { psn, answer, msn } => (
                    self.answer_header(Operation::Acknowledge, psn, answer, msn),
                    Vec::new(),
                    true,
                ),
                Answer::Atomic {
                    psn, original, msn, ..
                } => {
                    let answer = aeth::Answer::Acknowledge;
                    let mut header =
                        self.answer_header(Operation::AtomicResponse, psn, answer, msn);
                    if let Some(header) = &mut header {
                        header.atomic[0] = original;
                    }
                    (header, Vec::new(), true)
                }
                Answer::Read(read) => match self.read_response(core, &read) {
                    Some((header, payload)) => (header, payload, read.sent + 1 == read.packets),
                    None => continue,
                },
            };
            let header = header.filter(|_| core.devices.reaches(self.device, self.attr.port));
            if let Some(header) = header {
                if let Err(packet) = tx.send(Packet { header, payload }) {
                    core.recycle(packet.payload);
                    turn.has_more = true;
                    return;
                }
            } else {
                core.recycle(payload);
            }
            turn.packets += 1;
            if is_done {
                self.responder.answers.pop_front();
            } else if let Some(Answer::Read(read)) = self.responder.answers.front_mut() {
                read.sent += 1;
            }
        }
    }

    /// The next response of a read. When its memory is no longer open to the
    /// peer, the read becomes a NAK.
    fn read_response(&mut self, core: &mut Core, read: &Read) -> Option<(Option<Header>, Vec<u8>)> {
        let mtu = self.mtu();
        let offset = read.sent * mtu;
        let length = mtu.min(read.length - offset);
        let psn = psn::add(read.first_psn, read.sent);
        let mut payload = core.take_buffer();
        payload.resize(length as usize, 0);
        let address = read.address.wrapping_add(u64::from(offset));
        let needs = Access::REMOTE_READ;
        let wide = u64::from(length);
        let host = core
            .mrs
            .translate_remote(read.key, self.key_user(), address, wide, needs);
        let is_read =
            length == 0 || host.is_ok_and(|host| memory::read(host, &mut payload).is_ok());
        if !is_read {
            core.recycle(payload);
            let msn = read.msn;
            let answer = aeth::Answer::AccessError;
            self.responder.answers.clear();
            self.responder
                .answers
                .push_back(Answer::Acknowledge { psn, answer, msn });
            self.enter_error(core);
            self.raise(core, AsyncEvent::QpAccessErr);
            return None;
        }
        let answer = aeth::Answer::Acknowledge;
        let mut header = self.answer_header(Operation::ReadResponse, psn, answer, read.msn);
        if let Some(header) = &mut header {
            header.flags.set(PacketFlags::FIRST, read.sent == 0);
            header
                .flags
                .set(PacketFlags::LAST, read.sent + 1 == read.packets);
        }
        Some((header, payload))
    }

    fn answer_header(
        &self,
        operation: Operation,
        psn: u32,
        answer: aeth::Answer,
        msn: u32,
    ) -> Option<Header> {
        let mut header = self.header(self.peer?, operation, psn);
        header.syndrome = answer.syndrome();
        header.msn = msn;
        Some(header)
    }
}
