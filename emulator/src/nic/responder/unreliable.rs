//! The unreliable connection: a message arrives whole or not at all
//! (IBA 9.8.2). Nothing is answered.

use super::super::core::Core;
use super::super::gather::Refused;
use super::super::qp::Qp;
use super::place::Refusal;
use crate::decode::cqe::Syndrome;
use crate::fabric::packet::{Header, Operation, PacketFlags};

impl Qp {
    pub(super) fn take_unreliable(&mut self, core: &mut Core, header: &Header, data: &[u8]) {
        if !self.receives() {
            return;
        }
        self.notice_peer(core);
        // A message may begin at any number; it goes on with the next one only.
        let begins = header.flags.contains(PacketFlags::FIRST);
        if begins || header.psn != self.responder.expected {
            self.abandon_message();
        }
        self.responder.expected = header.psn;
        let done =
            self.check_place_in_message(header, data)
                .and_then(|()| match header.operation {
                    Operation::Send => self.place_send(core, header, data),
                    Operation::Write => self.place_write(core, header, data),
                    _ => Err(Refusal::Invalid),
                });
        match done {
            Ok(packets) => self.executed(core, header, packets),
            // What the peer sends wrongly, or too early, is dropped in silence.
            Err(Refusal::NotReady | Refusal::Invalid | Refusal::Access | Refusal::Invalidate) => {
                self.abandon_message();
                core.note(|| format!("packet from {header:?} dropped"));
            }
            Err(Refusal::Receive(refused)) => self.fail_with_receive(core, refused),
        }
    }

    /// The rest of the message in progress is dropped. Its receive stays in
    /// use, for the next message.
    fn abandon_message(&mut self) {
        self.responder.message = None;
        self.responder.placed = 0;
    }

    /// The receive in use cannot take its message: it is this side's fault,
    /// and completes here.
    pub(super) fn fail_with_receive(&mut self, core: &mut Core, refused: Refused) {
        let syndrome = match refused {
            Refused::TooShort => Syndrome::LocalLength,
            Refused::Protection => Syndrome::LocalProtection,
        };
        self.fail_receive(core, syndrome);
        self.enter_error(core);
    }
}
