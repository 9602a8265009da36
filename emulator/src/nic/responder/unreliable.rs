//! Unreliable connections: a message arrives completely or not at all (IBA 9.8.2).
//! There are no responses.
//!
//! Decision: `docs/decisions/048-unreliable-transports-drop.md`

use super::super::core::Core;
use super::super::qp::Qp;
use super::super::scatter_gather::SgeError;
use super::execute::NakReason;
use crate::decode::cqe::Syndrome;
use crate::fabric::counters::Counter;
use crate::fabric::packet::{Header, Operation, PacketFlags};

impl Qp {
    pub(in crate::nic) fn receive_unreliable(
        &mut self,
        core: &mut Core,
        header: &Header,
        data: &[u8],
    ) {
        if !self.receives() {
            return;
        }
        self.raise_comm_est(core);
        // A message may begin with any PSN and continues with the next one only.
        let begins = header.flags.contains(PacketFlags::FIRST);
        if begins || header.psn != self.responder.expected {
            self.abandon_message();
        }
        self.responder.expected = header.psn;
        let done = self
            .check_message_order(header, data)
            .and_then(|()| match header.operation {
                Operation::Send => self.place_send(core, header, data),
                Operation::Write => self.place_write(core, header, data),
                _ => Err(NakReason::Invalid(
                    "the operation is not one of this service",
                )),
            });
        // Invalid packets, and packets without a receive, are silently dropped.
        let cause = match done {
            Ok(packets) => return self.executed(core, header, packets),
            Err(NakReason::Receive(error)) => return self.fail_receive_and_qp(core, error),
            Err(NakReason::NotReady) => {
                core.count(self.port(), Counter::OutOfBuffer);
                "no receive is posted"
            }
            Err(NakReason::Invalid(cause) | NakReason::Access(cause)) => cause,
            Err(NakReason::Invalidate) => "the key that it invalidates is not valid",
        };
        self.abandon_message();
        core.note_dropped(header, || cause.into());
    }

    /// Drops the rest of the message in progress. Its receive stays in use for the next
    /// message.
    fn abandon_message(&mut self) {
        self.responder.message = None;
        self.responder.placed = 0;
    }

    /// Fails the receive in use, which cannot hold its message, and the QP: the error is
    /// on this side.
    pub(super) fn fail_receive_and_qp(&mut self, core: &mut Core, error: SgeError) {
        let syndrome = match error {
            SgeError::TooShort => Syndrome::LocalLength,
            SgeError::Protection => Syndrome::LocalProtection,
        };
        self.fail_receive(core, syndrome);
        self.enter_error(core);
    }
}
