//! Sending responses: acks, NAKs, responses to reads and atomics.

use super::super::core::Core;
use super::super::qp::Qp;
use super::super::requester::Turn;
use super::super::{memory, psn};
use super::aeth;
use super::execute::INACCESSIBLE;
use crate::fabric::counters::Counter;
use crate::fabric::packet::{Header, Operation, PacketFlags};
use crate::spec::{Access, AsyncEvent};

/// A response to the requester that is not sent yet.
#[derive(Clone, Copy, Debug)]
pub(in crate::nic) enum Response {
    /// An ack or NAK.
    Acknowledge { psn: u32, ack: aeth::Ack, msn: u32 },
    /// The data of a read.
    Read(Read),
    /// The original value of an atomic.
    Atomic {
        psn: u32,
        original: u64,
        msn: u32,
        replayed: bool,
    },
    /// A congestion notification.
    Notification,
}

/// A read that is being responded to.
#[derive(Clone, Copy, Debug)]
pub(in crate::nic) struct Read {
    pub(super) first_psn: u32,
    pub(super) packets: u32,
    pub(super) sent: u32,
    pub(super) address: u64,
    pub(super) key: u32,
    pub(super) length: u32,
    pub(super) msn: u32,
    pub(super) replayed: bool,
}

impl Response {
    /// Returns whether the response counts against `max_dest_rd_atomic`: the first
    /// response to a read or an atomic. Replayed responses have a limit of their own.
    pub(super) fn holds_resource(&self) -> bool {
        match self {
            Self::Acknowledge { .. } | Self::Notification => false,
            Self::Read(Read { replayed, .. }) | Self::Atomic { replayed, .. } => !replayed,
        }
    }
}

impl Qp {
    /// Queues an ack of everything up to `psn`. Replaces an ack at the end of the
    /// queue.
    pub(super) fn queue_ack(&mut self, core: &mut Core, psn: u32) {
        let msn = self.responder.msn;
        let acknowledge = Response::Acknowledge {
            psn,
            ack: aeth::Ack::Acknowledge,
            msn,
        };
        match self.responder.responses.back_mut() {
            Some(
                last @ Response::Acknowledge {
                    ack: aeth::Ack::Acknowledge,
                    ..
                },
            ) => {
                *last = acknowledge;
            }
            _ => self.responder.responses.push_back(acknowledge),
        }
        self.make_ready(core);
    }

    /// Queues a NAK for `psn`.
    pub(super) fn queue_nak(&mut self, core: &mut Core, psn: u32, ack: aeth::Ack) {
        let msn = self.responder.msn;
        self.responder
            .responses
            .push_back(Response::Acknowledge { psn, ack, msn });
        self.make_ready(core);
    }

    /// Sends responses while there is room; sets `turn.has_more` if some are left.
    pub(in crate::nic) fn send_responses(&mut self, core: &mut Core, turn: &mut Turn<'_>) {
        while let Some(response) = self.responder.responses.front().copied() {
            if !turn.continues(self.destination()) {
                return;
            }
            let (header, payload, is_done) = match response {
                Response::Acknowledge { psn, ack, msn } => (
                    self.response_header(Operation::Acknowledge, psn, ack, msn),
                    Vec::new(),
                    true,
                ),
                Response::Atomic {
                    psn, original, msn, ..
                } => {
                    let ack = aeth::Ack::Acknowledge;
                    let mut header = self.response_header(Operation::AtomicResponse, psn, ack, msn);
                    if let Some(header) = &mut header {
                        header.atomic[0] = original;
                    }
                    (header, Vec::new(), true)
                }
                Response::Notification => (self.notification_header(), Vec::new(), true),
                Response::Read(read) => match self.read_response(core, &read) {
                    Some((header, payload)) => (header, payload, read.sent + 1 == read.packets),
                    None => continue,
                },
            };
            if !self.send(core, turn, header, payload) {
                return;
            }
            if is_done {
                self.responder.responses.pop_front();
            } else if let Some(Response::Read(read)) = self.responder.responses.front_mut() {
                read.sent += 1;
            }
        }
    }

    /// Returns the next packet of a read response. If the peer may not access the
    /// memory any more, queues a NAK instead.
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
            .mkeys
            .translate_remote(read.key, self.key_user(), address, wide, needs);
        core.place_rest();
        let refused = match host {
            _ if length == 0 => None,
            Ok(host) => memory::read(host, &mut payload).err().map(|_| INACCESSIBLE),
            Err(denied) => Some(denied.text()),
        };
        if let Some(cause) = refused {
            core.recycle(payload);
            let msn = read.msn;
            let ack = aeth::Ack::AccessError;
            self.responder.responses.clear();
            self.responder
                .responses
                .push_back(Response::Acknowledge { psn, ack, msn });
            core.count(self.port(), Counter::AccessRefused);
            self.enter_error(core);
            let (at, key, length) = (read.address, read.key, read.length);
            let cause = format!(
                "it ended the peer's RDMA READ (address {at:#x}, key {key:#x}, {length} bytes): {cause}"
            );
            self.raise_failure(core, AsyncEvent::QpAccessErr, &cause);
            return None;
        }
        let ack = aeth::Ack::Acknowledge;
        let mut header = self.response_header(Operation::ReadResponse, psn, ack, read.msn);
        if let Some(header) = &mut header {
            header.flags.set(PacketFlags::FIRST, read.sent == 0);
            header
                .flags
                .set(PacketFlags::LAST, read.sent + 1 == read.packets);
        }
        Some((header, payload))
    }

    fn response_header(
        &self,
        operation: Operation,
        psn: u32,
        ack: aeth::Ack,
        msn: u32,
    ) -> Option<Header> {
        let mut header = self.header(self.peer?, operation, psn);
        header.syndrome = ack.syndrome();
        header.msn = msn;
        Some(header)
    }
}
