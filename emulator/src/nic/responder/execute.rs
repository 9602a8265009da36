//! Executing in-order request packets.

use super::super::core::Core;
use super::super::psn;
use super::super::qp::Qp;
use super::super::scatter_gather::SgeError;
use super::{Target, aeth};
use crate::decode::cqe::Syndrome;
use crate::fabric::counters::Counter;
use crate::fabric::packet::{Header, Operation, PacketFlags};
use crate::limits::MAX_MSG;
use crate::spec::{Access, AsyncEvent};

pub(super) const NOT_PERMITTED: &str =
    "the queue pair's access flags, or max_dest_rd_atomic 0, do not permit it";
const TOO_LONG: &str = "it is longer than the maximum of the device";
pub(super) const TOO_MANY: &str =
    "more reads and atomics are outstanding than max_dest_rd_atomic permits";
/// The key permits the access, but the memory is gone.
pub(super) const INACCESSIBLE: &str =
    "the registered memory is unmapped, or not accessible as needed";

/// Returns the cause of a failure by the peer's request `header`.
#[cold]
pub(super) fn refused(header: &Header, cause: &str) -> String {
    let what = match header.operation {
        Operation::Send => "SEND",
        Operation::Write => "RDMA WRITE",
        Operation::ReadRequest => "RDMA READ",
        Operation::AtomicRequest => "atomic",
        _ => "packet",
    };
    format!(
        "it refused {what} of the peer (queue pair {:#x}, address {:#x}, key {:#x}, {} bytes): {cause}",
        header.source_qpn.0, header.remote_address, header.key, header.length
    )
}

/// Reasons why a packet is not executed.
pub(super) enum NakReason {
    /// No receive is posted.
    NotReady,
    /// The packet does not fit into its message, or its operation is not valid or not permitted on
    /// this QP (IBA table of responder errors: "not supported by this QP"), for this reason.
    Invalid(&'static str),
    /// The key, its bounds or its access flags do not permit the access, for this reason.
    Access(&'static str),
    /// The key that a SEND invalidates is not valid.
    Invalidate,
    /// The receive in use cannot hold the message.
    Receive(SgeError),
}

impl Qp {
    /// Executes the request packet of a reliable connection that is expected next.
    pub(in crate::nic) fn receive_request(
        &mut self,
        core: &mut Core,
        header: &Header,
        data: &[u8],
    ) {
        if !self.receives() {
            return;
        }
        self.raise_comm_est(core);
        match psn::distance(header.psn, self.responder.expected) {
            0 => self.responder.nak_sent = false,
            1.. => {
                core.count(self.port(), Counter::OutOfSequence);
                if !self.responder.nak_sent {
                    self.responder.nak_sent = true;
                    let expected = self.responder.expected;
                    self.queue_nak(core, expected, aeth::Ack::SequenceError);
                }
                return;
            }
            _ => return self.handle_duplicate(core, header),
        }
        let done = self
            .check_message_order(header, data)
            .and_then(|()| match header.operation {
                Operation::Send => self.place_send(core, header, data),
                Operation::Write => self.place_write(core, header, data),
                Operation::ReadRequest => self.begin_read(core, header),
                Operation::AtomicRequest => self.execute_atomic(core, header),
                _ => Err(NakReason::Invalid("the operation is not a request")),
            });
        match done {
            Ok(packets) => self.executed(core, header, packets),
            Err(reason) => self.refuse(core, header, reason),
        }
    }

    pub(super) fn executed(&mut self, core: &mut Core, header: &Header, packets: u32) {
        let responder = &mut self.responder;
        responder.expected = psn::add(responder.expected, packets);
        if header.flags.contains(PacketFlags::LAST) {
            responder.message = None;
            responder.placed = 0;
            responder.msn = psn::add(responder.msn, 1);
            let request = match header.operation {
                Operation::Write => Some(Counter::Writes),
                Operation::ReadRequest => Some(Counter::Reads),
                Operation::AtomicRequest => Some(Counter::Atomics),
                _ => None,
            };
            if let Some(request) = request {
                core.count(self.port(), request);
            }
        } else {
            responder.message = Some(header.operation);
        }
        // Reads and atomics are acknowledged by their responses.
        let has_response = matches!(
            header.operation,
            Operation::ReadRequest | Operation::AtomicRequest
        );
        if !has_response && header.flags.contains(PacketFlags::ACK_REQUEST) {
            self.queue_ack(core, header.psn);
        }
    }

    fn refuse(&mut self, core: &mut Core, header: &Header, reason: NakReason) {
        let (ack, syndrome, failure) = match reason {
            NakReason::NotReady => {
                core.count(self.port(), Counter::OutOfBuffer);
                self.responder.nak_sent = true;
                let code = self.attr.min_rnr_timer;
                let ack = aeth::Ack::RnrNak(code);
                return self.queue_nak(core, header.psn, ack);
            }
            NakReason::Invalid(cause) => {
                let failure = Some((AsyncEvent::QpReqErr, cause));
                (aeth::Ack::InvalidRequest, Syndrome::Flushed, failure)
            }
            NakReason::Access(cause) => {
                let failure = Some((AsyncEvent::QpAccessErr, cause));
                (aeth::Ack::AccessError, Syndrome::Flushed, failure)
            }
            NakReason::Invalidate => (aeth::Ack::AccessError, Syndrome::LocalAccess, None),
            // A completion reports the error to the receiver, so no event is raised.
            NakReason::Receive(SgeError::TooShort) => {
                (aeth::Ack::InvalidRequest, Syndrome::LocalLength, None)
            }
            NakReason::Receive(SgeError::Protection) => {
                (aeth::Ack::OperationalError, Syndrome::LocalProtection, None)
            }
        };
        if ack == aeth::Ack::AccessError {
            core.count(self.port(), Counter::AccessRefused);
        }
        self.queue_nak(core, header.psn, ack);
        self.fail_receive(core, syndrome);
        self.enter_error(core);
        if let Some((event, cause)) = failure {
            self.raise_failure(core, event, &refused(header, cause));
        }
    }

    /// Checks that first, middle and last packets follow each other, and that all but
    /// the last are full.
    pub(super) fn check_message_order(
        &self,
        header: &Header,
        data: &[u8],
    ) -> Result<(), NakReason> {
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
            let order = "its packets are not in the order of a message, or not full";
            Err(NakReason::Invalid(order))
        }
    }

    pub(super) fn place_send(
        &mut self,
        core: &mut Core,
        header: &Header,
        data: &[u8],
    ) -> Result<u32, NakReason> {
        let is_first = header.flags.contains(PacketFlags::FIRST);
        let is_last = header.flags.contains(PacketFlags::LAST);
        if is_first && !self.take_receive(core) {
            return Err(NakReason::NotReady);
        }
        let pd = self.receive_pd(core);
        let offset = self.responder.placed;
        let is_small = !data.is_empty() && data.len() <= self.inline_receive_limit(core);
        let inline = is_first && is_last && is_small;
        let placed = if inline {
            core.check_scatter(&self.rq.sges, pd, data.len() as u32)
        } else {
            core.scatter(&self.rq.sges, pd, offset, data)
        };
        placed.map_err(NakReason::Receive)?;
        self.responder.placed = offset + data.len() as u32;
        if is_last {
            if header.flags.contains(PacketFlags::INVALIDATE) {
                let key = u32::from_be_bytes(header.immediate);
                let done = core.mkeys.invalidate(key, self.key_user());
                done.map_err(|_| NakReason::Invalidate)?;
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
    ) -> Result<u32, NakReason> {
        let is_last = header.flags.contains(PacketFlags::LAST);
        let has_immediate = header.flags.contains(PacketFlags::IMMEDIATE);
        if header.flags.contains(PacketFlags::FIRST) {
            self.begin_write(core, header)?;
        }
        let target = self.responder.target;
        let left = target.length - self.responder.placed;
        let length = data.len() as u32;
        if length > left || (is_last && length != left) {
            return Err(NakReason::Invalid(
                "its packets are longer or shorter than it",
            ));
        }
        // The immediate needs a receive; without one nothing is written.
        if is_last && has_immediate && !self.take_receive(core) {
            return Err(NakReason::NotReady);
        }
        if !data.is_empty() {
            let address = target
                .address
                .wrapping_add(u64::from(self.responder.placed));
            let needs = Access::REMOTE_WRITE;
            let user = self.key_user();
            let wide = u64::from(length);
            let mkeys = &core.mkeys;
            let host = mkeys.translate_remote(target.key, user, address, wide, needs);
            core.place_rest();
            let host = host.map_err(|denied| NakReason::Access(denied.text()))?;
            let written = core.place(host, data);
            written.map_err(|_| NakReason::Access(INACCESSIBLE))?;
        }
        self.responder.placed += length;
        if is_last && has_immediate {
            self.complete_receive(core, header, target.length, None);
        }
        Ok(1)
    }

    fn begin_write(&mut self, core: &Core, header: &Header) -> Result<(), NakReason> {
        if !self.attr.access.contains(Access::REMOTE_WRITE) {
            return Err(NakReason::Invalid(NOT_PERMITTED));
        }
        if header.length > MAX_MSG {
            return Err(NakReason::Invalid(TOO_LONG));
        }
        let (address, key, length) = (header.remote_address, header.key, header.length);
        // The key of an empty message is not checked.
        if length > 0 {
            let (user, wide) = (self.key_user(), u64::from(length));
            let needs = Access::REMOTE_WRITE;
            let open = core.mkeys.permit_remote(key, user, address, wide, needs);
            open.map_err(|denied| NakReason::Access(denied.text()))?;
        }
        self.responder.target = Target {
            address,
            key,
            length,
        };
        self.responder.placed = 0;
        Ok(())
    }

    fn begin_read(&mut self, core: &mut Core, header: &Header) -> Result<u32, NakReason> {
        self.check_read(core, header)?;
        if header.length > MAX_MSG {
            return Err(NakReason::Invalid(TOO_LONG));
        }
        if !self.has_resource() {
            return Err(NakReason::Invalid(TOO_MANY));
        }
        self.queue_read_response(core, header, false);
        Ok(header.length.div_ceil(self.mtu()).max(1))
    }

    /// Returns whether `max_dest_rd_atomic` permits one more read or atomic.
    pub(super) fn has_resource(&self) -> bool {
        let responses = self.responder.responses.iter();
        let open = responses
            .filter(|response| response.holds_resource())
            .count();
        open < usize::from(self.attr.max_dest_rd_atomic)
    }

    /// Checks that the peer may perform this read; returns the reason if not. With
    /// max_dest_rd_atomic 0 reads are not permitted (mlx5 clears the access flag).
    pub(super) fn check_read(&self, core: &Core, header: &Header) -> Result<(), NakReason> {
        let (user, needs) = (self.key_user(), Access::REMOTE_READ);
        if !self.attr.access.contains(needs) || self.attr.max_dest_rd_atomic == 0 {
            return Err(NakReason::Invalid(NOT_PERMITTED));
        }
        let length = u64::from(header.length);
        if length > 0 {
            let at = header.remote_address;
            let open = core
                .mkeys
                .permit_remote(header.key, user, at, length, needs);
            open.map_err(|denied| NakReason::Access(denied.text()))?;
        }
        Ok(())
    }
}
