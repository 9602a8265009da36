//! The fabric as a NIC sees it: one place to send to, one to receive from.

use std::collections::VecDeque;

use super::attachment::{Attachment, Trouble};
use super::bells::Wakes;
use super::packet::{Packet, Transmit};
use crate::nic::spec::Qpn;

/// Packets that wait in the process itself before there is "no room".
const LOOPBACK_PACKETS: usize = 1024;
/// Payload buffers that are kept for reuse.
const SPARE_PAYLOADS: usize = 256;

/// The process' access to its fabric. Packets to its own QPs take a queue in
/// the process; the others go through shared memory, if it has any.
#[derive(Debug)]
pub struct Port {
    slot: u8,
    shared: Option<Attachment>,
    loopback: VecDeque<Packet>,
    spare: Vec<Vec<u8>>,
    refused: bool,
}

impl Port {
    /// On a fabric with others.
    #[must_use]
    pub fn attached(attachment: Attachment) -> Self {
        Self {
            slot: attachment.slot(),
            shared: Some(attachment),
            ..Self::alone(0)
        }
    }

    /// On a fabric of one process, in slot `slot`.
    #[must_use]
    pub fn alone(slot: u8) -> Self {
        Self {
            slot,
            shared: None,
            loopback: VecDeque::with_capacity(LOOPBACK_PACKETS),
            spare: Vec::with_capacity(SPARE_PAYLOADS),
            refused: false,
        }
    }

    /// The slot of this process.
    #[must_use]
    pub fn slot(&self) -> u8 {
        self.slot
    }

    /// The shared fabric.
    #[must_use]
    pub fn attachment(&self) -> Option<&Attachment> {
        self.shared.as_ref()
    }

    /// Leaves the shared fabric: packets to others vanish from now on.
    pub fn leave(&mut self) {
        self.shared = None;
    }

    /// Whether the memory that is shared with others was truncated.
    pub fn is_lost(&mut self) -> bool {
        self.shared.as_mut().is_some_and(Attachment::is_lost)
    }

    /// Returns what went wrong on the shared fabric since the last call.
    #[must_use]
    pub fn take_trouble(&mut self) -> Option<Trouble> {
        self.shared.as_mut().and_then(Attachment::take_trouble)
    }

    /// Whether there may be a packet, or room where there was none.
    #[must_use]
    pub fn has_pending(&self) -> bool {
        !self.loopback.is_empty() || self.shared.as_ref().is_some_and(Attachment::has_pending)
    }

    /// The peers to be woken at once for what was sent to them.
    #[must_use]
    pub fn take_urgent(&mut self) -> Wakes {
        let shared = self.shared.as_mut();
        shared.map_or_else(Wakes::default, Attachment::take_urgent)
    }

    /// Whether acknowledgements lie with peers that were not woken for them.
    #[must_use]
    pub fn has_patient(&self) -> bool {
        self.shared.as_ref().is_some_and(Attachment::has_patient)
    }

    /// All peers that were sent something and not woken for it.
    #[must_use]
    pub fn take_wakes(&mut self) -> Wakes {
        let shared = self.shared.as_mut();
        shared.map_or_else(Wakes::default, Attachment::take_wakes)
    }

    /// Takes the next packet.
    pub fn receive(&mut self) -> Option<Packet> {
        if let Some(packet) = self.loopback.pop_front() {
            return Some(packet);
        }
        let shared = self.shared.as_mut()?;
        let mut payload = self.spare.pop().unwrap_or_default();
        match shared.receive(&mut payload) {
            Some(header) => Some(Packet { header, payload }),
            None => {
                self.recycle(payload);
                None
            }
        }
    }

    /// What was received has been answered, as far as it is to be: until then
    /// senders do not count the time that it takes.
    pub fn served(&mut self) {
        if let Some(shared) = &mut self.shared {
            shared.served();
        }
    }

    /// Whether a packet has been refused since this was asked last: then the
    /// NIC wants to be run again when there is room.
    pub fn take_refused(&mut self) -> bool {
        std::mem::take(&mut self.refused)
    }

    /// Keeps the buffer of a packet that has left for one that arrives.
    fn recycle(&mut self, mut payload: Vec<u8>) {
        if payload.capacity() != 0 && self.spare.len() < SPARE_PAYLOADS {
            payload.clear();
            self.spare.push(payload);
        }
    }
}

impl Transmit for Port {
    fn has_room(&mut self, destination: Qpn) -> bool {
        let to = slot_of(destination);
        let room = if to == self.slot {
            self.loopback.len() < LOOPBACK_PACKETS
        } else {
            self.shared
                .as_mut()
                .is_none_or(|shared| shared.has_room(to))
        };
        self.refused |= !room;
        room
    }

    fn send(&mut self, packet: Packet) -> Result<(), Packet> {
        let to = slot_of(packet.header.destination_qpn);
        let taken = if to == self.slot {
            if self.loopback.len() < LOOPBACK_PACKETS {
                self.loopback.push_back(packet);
                return Ok(());
            }
            false
        } else {
            match &mut self.shared {
                Some(shared) => shared.send(to, &packet).is_ok(),
                None => true,
            }
        };
        if taken {
            self.recycle(packet.payload);
            Ok(())
        } else {
            self.refused = true;
            Err(packet)
        }
    }

    fn is_unheard(&mut self, destination: Qpn) -> bool {
        let to = slot_of(destination);
        if to == self.slot {
            return !self.loopback.is_empty();
        }
        self.shared
            .as_mut()
            .is_some_and(|shared| shared.is_unheard(to))
    }
}

fn slot_of(qpn: Qpn) -> u8 {
    (qpn.0 >> 16) as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::tests::packet;

    #[test]
    fn packets_to_oneself_come_back_in_order() {
        let mut port = Port::alone(5);
        for psn in 0..3 {
            assert!(port.send(packet(5, 5, psn, b"abc")).is_ok());
        }
        for psn in 0..3 {
            let found = port.receive().unwrap();
            assert_eq!((found.header.psn, &found.payload[..]), (psn, &b"abc"[..]));
        }
        assert!(port.receive().is_none() && !port.has_pending());
    }

    #[test]
    fn a_full_loopback_refuses_and_remembers_that_it_did() {
        let mut port = Port::alone(5);
        while port.has_room(Qpn(5 << 16)) {
            port.send(packet(5, 5, 0, b"")).unwrap();
        }
        assert!(port.take_refused() && !port.take_refused());
        assert!(port.send(packet(5, 5, 1, b"")).is_err());
        assert!(port.take_refused());
        port.receive().unwrap();
        assert!(port.has_room(Qpn(5 << 16)) && !port.take_refused());
    }

    #[test]
    fn without_a_shared_fabric_packets_to_others_vanish() {
        let mut port = Port::alone(5);
        assert!(port.has_room(Qpn(6 << 16)));
        assert!(port.send(packet(5, 6, 0, b"x")).is_ok());
        assert!(!port.has_pending());
    }
}
