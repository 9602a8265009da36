//! The fabric as a NIC sees it: one port to send and receive packets.

use std::collections::VecDeque;

use super::attachment::{Attachment, FabricError};
use super::packet::{Destination, Dropped, Operation, OtherHosts, Packet, Transmit};
use super::waker::WakeSet;
use crate::spec::{PortSet, Qpn};

/// Maximum number of packets queued in the process itself.
const LOOPBACK_PACKETS: usize = 1024;
/// Maximum number of packets of other hosts that one call of [`Port::receive`] drops, so that
/// strangers do not keep the NIC from its other work.
const MAX_DROPPED: usize = 64;
/// Maximum number of payload buffers kept for reuse.
const SPARE_PAYLOADS: usize = 256;

/// The process's access to its fabric. Packets to its own QPs take a queue inside
/// the process; packets to others go through shared memory, if there is any.
#[derive(Debug)]
pub struct Port {
    slot: u8,
    shared: Option<Attachment>,
    loopback: VecDeque<Packet>,
    free_payloads: Vec<Vec<u8>>,
    send_blocked: bool,
    other_hosts: Option<Box<dyn OtherHosts>>,
    /// Packets of other hosts that were dropped since they were last counted: with a wrong
    /// CRC, and others.
    dropped: [u64; 2],
}

impl Port {
    /// Returns a port on a shared fabric.
    #[must_use]
    pub fn attached(attachment: Attachment) -> Self {
        Self {
            slot: attachment.slot(),
            shared: Some(attachment),
            ..Self::without_peers(0)
        }
    }

    /// Returns a port without peers, for a process in slot `slot`.
    #[must_use]
    pub fn without_peers(slot: u8) -> Self {
        Self {
            slot,
            shared: None,
            loopback: VecDeque::with_capacity(LOOPBACK_PACKETS),
            free_payloads: Vec::with_capacity(SPARE_PAYLOADS),
            send_blocked: false,
            other_hosts: None,
            dropped: [0; 2],
        }
    }

    /// Opens the way to other hosts.
    pub(crate) fn reach(&mut self, other_hosts: Box<dyn OtherHosts>) {
        self.other_hosts = Some(other_hosts);
    }

    /// Returns the numbers of packets of other hosts that were dropped since the last call:
    /// with a wrong CRC, and others.
    pub(crate) fn take_dropped(&mut self) -> [u64; 2] {
        std::mem::take(&mut self.dropped)
    }

    /// Returns the slot of this process.
    #[must_use]
    pub fn slot(&self) -> u8 {
        self.slot
    }

    /// Returns the attachment to the shared fabric.
    #[must_use]
    pub fn attachment(&self) -> Option<&Attachment> {
        self.shared.as_ref()
    }

    /// Leaves the shared fabric: packets to peers are dropped from now on.
    pub fn leave(&mut self) {
        self.shared = None;
    }

    /// Returns whether the shared memory was truncated.
    pub fn is_lost(&mut self) -> bool {
        self.shared.as_mut().is_some_and(Attachment::is_lost)
    }

    /// Returns the last error of the shared fabric that was not reported yet.
    #[must_use]
    pub fn take_error(&mut self) -> Option<FabricError> {
        self.shared.as_mut().and_then(Attachment::take_error)
    }

    /// Returns whether there may be a packet, or new room to send.
    #[must_use]
    pub fn has_pending(&self) -> bool {
        self.has_own_packets() || self.shared.as_ref().is_some_and(Attachment::has_pending)
    }

    /// Returns whether the process has sent itself packets that it has not received yet.
    #[must_use]
    pub fn has_own_packets(&self) -> bool {
        !self.loopback.is_empty()
    }

    /// Returns the peers to wake at once for packets sent to them.
    #[must_use]
    pub fn take_immediate_wakes(&mut self) -> WakeSet {
        let shared = self.shared.as_mut();
        shared.map_or_else(WakeSet::default, Attachment::take_immediate_wakes)
    }

    /// Returns whether peers were sent acks without being woken.
    #[must_use]
    pub fn has_delayed_wakes(&self) -> bool {
        self.shared
            .as_ref()
            .is_some_and(Attachment::has_delayed_wakes)
    }

    /// Returns all peers that were sent something without being woken.
    #[must_use]
    pub fn take_wakes(&mut self) -> WakeSet {
        let shared = self.shared.as_mut();
        shared.map_or_else(WakeSet::default, Attachment::take_wakes)
    }

    /// Returns the ports of the devices that are switched off, if that has changed
    /// since the last call.
    #[must_use]
    pub fn take_switched_ports(&self) -> Option<PortSet> {
        self.shared.as_ref()?.waker().take_switched_ports()
    }

    /// Takes the next packet.
    pub fn receive(&mut self) -> Option<Packet> {
        if let Some(packet) = self.loopback.pop_front() {
            return Some(packet);
        }
        let shared = self.shared.as_mut()?;
        if !shared.has_packets() {
            return None;
        }
        let mut payload = self.free_payloads.pop().unwrap_or_default();
        for _ in 0..MAX_DROPPED {
            match shared.receive(&mut payload) {
                Some(header) if header.operation == Operation::Foreign => {
                    let bytes = std::mem::take(&mut payload);
                    let other_hosts = self.other_hosts.as_ref();
                    let found = other_hosts.map(|it| it.decode(&bytes, &mut payload));
                    match found {
                        Some(Ok(header)) => return Some(Packet { header, payload }),
                        Some(Err(Dropped::Icrc)) => self.dropped[0] += 1,
                        Some(Err(Dropped::Malformed)) | None => self.dropped[1] += 1,
                    }
                }
                Some(header) => return Some(Packet { header, payload }),
                None => {
                    self.recycle(payload);
                    return None;
                }
            }
        }
        self.recycle(payload);
        None
    }

    /// Records that the received packets have been served. Until then senders
    /// count no ack timeouts.
    pub fn served(&mut self) {
        if let Some(shared) = &mut self.shared {
            shared.served();
        }
    }

    /// Returns whether a send has found no room since the last call. The NIC must
    /// then run again when there is room.
    pub fn take_send_blocked(&mut self) -> bool {
        std::mem::take(&mut self.send_blocked)
    }

    /// Keeps the buffer of a sent packet for a later received one.
    fn recycle(&mut self, mut payload: Vec<u8>) {
        if payload.capacity() != 0 && self.free_payloads.len() < SPARE_PAYLOADS {
            payload.clear();
            self.free_payloads.push(payload);
        }
    }
}

impl Transmit for Port {
    fn has_room(&mut self, to: Destination) -> bool {
        if to.is_other_host() {
            return true;
        }
        let to = slot_of(to.qpn);
        let room = if to == self.slot {
            self.loopback.len() < LOOPBACK_PACKETS
        } else {
            self.shared
                .as_mut()
                .is_none_or(|shared| shared.has_room(to))
        };
        self.send_blocked |= !room;
        room
    }

    fn send(&mut self, mut packet: Packet) -> Result<(), Packet> {
        if packet.header.to().is_other_host() {
            if let Some(other_hosts) = &mut self.other_hosts {
                other_hosts.send(&packet);
            }
            self.recycle(packet.payload);
            return Ok(());
        }
        let to = slot_of(packet.header.destination_qpn);
        let taken = if to == self.slot {
            if self.loopback.len() < LOOPBACK_PACKETS {
                // No router marks it, so the receiver does not learn it.
                packet.header.route.traffic_class = 0;
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
            self.send_blocked = true;
            Err(packet)
        }
    }

    fn peer_is_busy(&mut self, to: Destination) -> bool {
        if to.is_other_host() {
            return false;
        }
        let to = slot_of(to.qpn);
        if to == self.slot {
            return !self.loopback.is_empty();
        }
        self.shared
            .as_mut()
            .is_some_and(|shared| shared.peer_is_busy(to))
    }

    fn generation_of(&mut self, slot: u8) -> Option<u32> {
        if slot == self.slot {
            return Some(0);
        }
        self.shared.as_mut()?.live_generation(slot)
    }
}

fn slot_of(qpn: Qpn) -> u8 {
    (qpn.0 >> 16) as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::tests::packet;

    fn to(slot: u8) -> Destination {
        Destination {
            port: None,
            qpn: Qpn(u32::from(slot) << 16),
        }
    }

    #[test]
    fn packets_to_the_own_slot_arrive_in_order() {
        let mut port = Port::without_peers(5);
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
    fn a_packet_to_the_own_slot_has_crossed_no_router_that_marks_it() {
        let mut port = Port::without_peers(5);
        let mut sent = packet(5, 5, 0, b"");
        sent.header.route.traffic_class = 3;
        assert!(sent.header.is_marked());
        port.send(sent).unwrap();
        assert!(!port.receive().unwrap().header.is_marked());
    }

    #[test]
    fn a_full_loopback_queue_refuses_packets_and_records_that_it_did() {
        let mut port = Port::without_peers(5);
        while port.has_room(to(5)) {
            port.send(packet(5, 5, 0, b"")).unwrap();
        }
        assert!(port.take_send_blocked() && !port.take_send_blocked());
        assert!(port.send(packet(5, 5, 1, b"")).is_err());
        assert!(port.take_send_blocked());
        port.receive().unwrap();
        assert!(port.has_room(to(5)) && !port.take_send_blocked());
    }

    #[test]
    fn without_a_shared_fabric_packets_to_peers_are_dropped() {
        let mut port = Port::without_peers(5);
        assert!(port.has_room(to(6)));
        assert!(port.send(packet(5, 6, 0, b"x")).is_ok());
        assert!(!port.has_pending());
    }
}
