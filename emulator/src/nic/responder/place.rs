//! Executing request packets that are in order.

use super::super::core::Core;
use super::super::gather::Refused;
use super::super::memory;
use super::super::psn;
use super::super::qp::Qp;
use super::super::spec::{Access, AsyncEvent};
use super::{Target, aeth};
use crate::decode::cqe::Syndrome;
use crate::fabric::packet::{Header, Operation, PacketFlags};
use crate::limits::MAX_MSG;

/// Why a packet is not executed.
pub(super) enum Refusal {
    /// No receive is posted.
    NotReady,
    /// The packet does not fit its message or this QP.
    Invalid,
    /// Key, bounds or rights of the remote address.
    Access,
    /// The key that a SEND asks to invalidate.
    Invalidate,
    /// The receive in use cannot take the message.
    Receive(Refused),
}

impl Qp {
    pub(super) fn execute(&mut self, core: &mut Core, header: &Header, data: &[u8]) {
        let done =
            self.check_place_in_message(header, data)
                .and_then(|()| match header.operation {
                    Operation::Send => self.place_send(core, header, data),
                    Operation::Write => self.place_write(core, header, data),
                    Operation::ReadRequest => self.begin_read(core, header),
                    Operation::AtomicRequest => self.execute_atomic(core, header),
                    _ => Err(Refusal::Invalid),
                });
        match done {
            Ok(packets) => self.executed(core, header, packets),
            Err(refusal) => self.refuse(core, header, refusal),
        }
    }

    pub(super) fn executed(&mut self, core: &mut Core, header: &Header, packets: u32) {
        let responder = &mut self.responder;
        responder.expected = psn::add(responder.expected, packets);
        if header.flags.contains(PacketFlags::LAST) {
            responder.message = None;
            responder.placed = 0;
            responder.msn = psn::add(responder.msn, 1);
        } else {
            responder.message = Some(header.operation);
        }
        // Reads and atomics are acknowledged by their responses.
        let is_answered = matches!(
            header.operation,
            Operation::ReadRequest | Operation::AtomicRequest
        );
        if !is_answered && header.flags.contains(PacketFlags::ACK_REQUEST) {
            self.owe_acknowledge(core, header.psn);
        }
    }

    fn refuse(&mut self, core: &mut Core, header: &Header, refusal: Refusal) {
        let (answer, syndrome, event) = match refusal {
            Refusal::NotReady => {
                self.responder.refused = true;
                let code = self.attr.min_rnr_timer;
                let answer = aeth::Answer::ReceiverNotReady(code);
                return self.owe_refusal(core, header.psn, answer);
            }
            Refusal::Invalid => {
                let event = Some(AsyncEvent::QpReqErr);
                (aeth::Answer::InvalidRequest, Syndrome::Flushed, event)
            }
            Refusal::Access => {
                let event = Some(AsyncEvent::QpAccessErr);
                (aeth::Answer::AccessError, Syndrome::Flushed, event)
            }
            Refusal::Invalidate => (aeth::Answer::AccessError, Syndrome::LocalAccess, None),
            // The completion tells the receiver; no event is needed.
            Refusal::Receive(Refused::TooShort) => {
                (aeth::Answer::InvalidRequest, Syndrome::LocalLength, None)
            }
            Refusal::Receive(Refused::Protection) => (
                aeth::Answer::OperationalError,
                Syndrome::LocalProtection,
                None,
            ),
        };
        self.owe_refusal(core, header.psn, answer);
        self.fail_receive(core, syndrome);
        self.enter_error(core);
        if let Some(event) = event {
            self.raise(core, event);
        }
    }

    /// First, middle and last packets must follow each other, full but the last.
    pub(super) fn check_place_in_message(
        &self,
        header: &Header,
        data: &[u8],
    ) -> Result<(), Refusal> {
        let is_first = header.flags.contains(PacketFlags::FIRST);
        let is_last = header.flags.contains(PacketFlags::LAST);
        let follows = match self.responder.message {
            None => is_first,
            Some(operation) => !is_first && operation == header.operation,
        };
        let mtu = self.mtu() as usize;
        let fits = if is_last {
            data.len() <= mtu
        } else {
            data.len() == mtu
        };
        if follows && fits {
            Ok(())
        } else {
            Err(Refusal::Invalid)
        }
    }

    pub(super) fn place_send(
        &mut self,
        core: &mut Core,
        header: &Header,
        data: &[u8],
    ) -> Result<u32, Refusal> {
        let is_first = header.flags.contains(PacketFlags::FIRST);
        let is_last = header.flags.contains(PacketFlags::LAST);
        if is_first && !self.take_receive(core) {
            return Err(Refusal::NotReady);
        }
        let pd = self.receive_pd(core);
        let offset = self.responder.placed;
        let is_small = !data.is_empty() && data.len() <= self.inline_room(core);
        let inline = is_first && is_last && is_small;
        let placed = if inline {
            core.check_scatter(&self.rq.list, pd, data.len() as u32)
        } else {
            core.scatter(&self.rq.list, pd, offset, data)
        };
        placed.map_err(Refusal::Receive)?;
        self.responder.placed = offset + data.len() as u32;
        if is_last {
            if header.flags.contains(PacketFlags::INVALIDATE) {
                let key = u32::from_be_bytes(header.immediate);
                let done = core.mrs.invalidate(key, self.key_user());
                done.map_err(|_| Refusal::Invalidate)?;
            }
            let bytes = self.responder.placed;
            self.complete_receive(core, header, bytes, inline.then_some(data));
        }
        Ok(1)
    }

    pub(super) fn place_write(
        &mut self,
        core: &mut Core,
        header: &Header,
        data: &[u8],
    ) -> Result<u32, Refusal> {
        let is_last = header.flags.contains(PacketFlags::LAST);
        let has_immediate = header.flags.contains(PacketFlags::IMMEDIATE);
        if header.flags.contains(PacketFlags::FIRST) {
            self.begin_write(core, header)?;
        }
        let target = self.responder.target;
        let left = target.length - self.responder.placed;
        let length = data.len() as u32;
        if length > left || (is_last && length != left) {
            return Err(Refusal::Invalid);
        }
        // The immediate takes a receive, and without one nothing is written.
        if is_last && has_immediate && !self.take_receive(core) {
            return Err(Refusal::NotReady);
        }
        if !data.is_empty() {
            let address = target
                .address
                .wrapping_add(u64::from(self.responder.placed));
            let needs = Access::REMOTE_WRITE;
            let user = self.key_user();
            let wide = u64::from(length);
            let mrs = &core.mrs;
            let host = mrs.translate_remote(target.key, user, address, wide, needs);
            let written = host.is_ok_and(|host| memory::write(host, data).is_ok());
            if !written {
                return Err(Refusal::Access);
            }
        }
        self.responder.placed += length;
        if is_last && has_immediate {
            self.complete_receive(core, header, target.length, None);
        }
        Ok(1)
    }

    fn begin_write(&mut self, core: &Core, header: &Header) -> Result<(), Refusal> {
        if !self.attr.access.contains(Access::REMOTE_WRITE) {
            return Err(Refusal::Access);
        }
        if header.length > MAX_MSG {
            return Err(Refusal::Invalid);
        }
        let (address, key, length) = (header.remote_address, header.key, header.length);
        // The key of an empty message is not looked at.
        if length > 0 {
            let (user, wide) = (self.key_user(), u64::from(length));
            let needs = Access::REMOTE_WRITE;
            let open = core.mrs.translate_remote(key, user, address, wide, needs);
            open.map_err(|_| Refusal::Access)?;
        }
        self.responder.target = Target {
            address,
            key,
            length,
        };
        self.responder.placed = 0;
        Ok(())
    }

    fn begin_read(&mut self, core: &mut Core, header: &Header) -> Result<u32, Refusal> {
        if !self.read_is_allowed(core, header) {
            return Err(Refusal::Access);
        }
        if header.length > MAX_MSG || !self.has_resource() {
            return Err(Refusal::Invalid);
        }
        self.owe_read(core, header, false);
        Ok(header.length.div_ceil(self.mtu()).max(1))
    }

    /// Whether one more read or atomic may be answered at the same time.
    pub(super) fn has_resource(&self) -> bool {
        let answers = self.responder.answers.iter();
        let open = answers.filter(|answer| answer.holds_resource()).count();
        open < usize::from(self.attr.max_dest_rd_atomic)
    }

    /// Whether the peer may read that. Without resources for reads the QP
    /// does not allow them (mlx5 clears the right).
    pub(super) fn read_is_allowed(&self, core: &Core, header: &Header) -> bool {
        let (user, needs) = (self.key_user(), Access::REMOTE_READ);
        let length = u64::from(header.length);
        self.attr.access.contains(needs)
            && self.attr.max_dest_rd_atomic > 0
            && (length == 0
                || core
                    .mrs
                    .translate_remote(header.key, user, header.remote_address, length, needs)
                    .is_ok())
    }
}
