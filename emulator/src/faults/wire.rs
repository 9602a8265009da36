//! Faults on the wire: packets on their way from the NIC to the fabric are
//! dropped, duplicated, delayed or reordered. QP, port and device faults, which
//! count packets, are triggered here too.

use super::decisions::Decisions;
use super::spec::{FaultSpec, Kind};
use crate::fabric::packet::{Destination, Packet, Transmit};
use crate::spec::{Nanos, PortAddress, Qpn};

/// Maximum number of delayed packets; the wire then reports that it is full.
const MAX_HELD: usize = 4096;
/// How long a reordered packet waits for the next packet of its QP, in ns.
const REORDER_TIMEOUT: Nanos = 50_000;

/// A QP, port or device fault that a packet has triggered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceFault {
    /// The QP fails.
    KillQp(Qpn),
    /// The port goes down for this time.
    PortFlap(PortAddress, Nanos),
    /// The port's GID table has changed.
    GidChange(PortAddress),
    /// The device fails.
    DeviceFatal(u8),
}

#[derive(Debug)]
struct DelayedPacket {
    due: Nanos,
    /// The packet is sent right after the next packet of its QP.
    reordered: bool,
    packet: Packet,
}

/// The wire between the NIC and the fabric, with faults.
#[derive(Debug)]
pub struct FaultyWire {
    decisions: Decisions,
    /// In sending order.
    held: Vec<DelayedPacket>,
    device_faults: Vec<DeviceFault>,
}

impl FaultyWire {
    /// Returns a wire with the faults of `spec`.
    #[must_use]
    pub fn new(spec: &FaultSpec) -> Self {
        Self {
            decisions: Decisions::new(spec),
            held: Vec::new(),
            device_faults: Vec::new(),
        }
    }

    /// Returns a transmitter that sends to `fabric` through this wire at time `now`.
    pub fn transmit_over<'a>(
        &'a mut self,
        fabric: &'a mut dyn Transmit,
        now: Nanos,
    ) -> FaultyTransmit<'a> {
        FaultyTransmit {
            wire: self,
            fabric,
            now,
        }
    }

    /// Returns the device faults that were triggered since the last call.
    pub fn take_device_faults(&mut self) -> Vec<DeviceFault> {
        std::mem::take(&mut self.device_faults)
    }

    /// Returns when the next delayed packet is due. Those that are due already wait for room.
    #[must_use]
    pub fn next_deadline(&self, now: Nanos) -> Option<Nanos> {
        let due = self.held.iter().map(|held| held.due);
        due.filter(|due| *due > now).min()
    }

    fn decide_device_faults(&mut self, packet: &Packet) {
        let from = packet.header.source;
        let device_faults = [
            (Kind::KillQp, DeviceFault::KillQp(packet.header.source_qpn)),
            (
                Kind::PortFlap,
                DeviceFault::PortFlap(from, self.decisions.time(Kind::PortFlap)),
            ),
            (Kind::GidChange, DeviceFault::GidChange(from)),
            (Kind::DeviceFatal, DeviceFault::DeviceFatal(from.device)),
        ];
        for (kind, fault) in device_faults {
            if self.decisions.decide(kind) {
                self.device_faults.push(fault);
            }
        }
    }
}

/// Sends packets to the fabric through a faulty wire.
pub struct FaultyTransmit<'a> {
    wire: &'a mut FaultyWire,
    fabric: &'a mut dyn Transmit,
    now: Nanos,
}

impl FaultyTransmit<'_> {
    /// Sends the delayed packets that are due. Returns whether there were any.
    pub fn release(&mut self) -> bool {
        let now = self.now;
        self.release_if(|held| held.due <= now)
    }

    fn release_if(&mut self, is_free: impl Fn(&DelayedPacket) -> bool) -> bool {
        let mut released = false;
        let mut index = 0;
        while let Some(held) = self.wire.held.get(index) {
            if is_free(held) && self.fabric.has_room(held.packet.header.to()) {
                let held = self.wire.held.remove(index);
                // Cannot fail: there is room.
                let _ = self.fabric.send(held.packet);
                released = true;
            } else {
                index += 1;
            }
        }
        released
    }

    fn delay_packet(&mut self, packet: Packet, time: Nanos, reordered: bool) {
        self.wire.held.push(DelayedPacket {
            due: self.now.saturating_add(time.max(1)),
            reordered,
            packet,
        });
    }
}

impl Transmit for FaultyTransmit<'_> {
    fn has_room(&mut self, to: Destination) -> bool {
        self.wire.held.len() < MAX_HELD && self.fabric.has_room(to)
    }

    fn send(&mut self, packet: Packet) -> Result<(), Packet> {
        // A packet that does not fit is sent again later: it is counted only
        // when it is accepted.
        if !self.has_room(packet.header.to()) {
            return Err(packet);
        }
        self.wire.decide_device_faults(&packet);
        let from = packet.header.source_qpn;
        let decisions = &mut self.wire.decisions;
        let [dropped, duplicated, delayed, reordered] =
            [Kind::Drop, Kind::Duplicate, Kind::Delay, Kind::Reorder]
                .map(|kind| decisions.decide(kind));
        if dropped {
            return Ok(());
        }
        if delayed {
            let time = self.wire.decisions.time(Kind::Delay);
            if duplicated {
                self.delay_packet(packet.clone(), time, false);
            }
            self.delay_packet(packet, time, false);
            return Ok(());
        }
        if reordered {
            self.delay_packet(packet, REORDER_TIMEOUT, true);
            return Ok(());
        }
        let copy = duplicated.then(|| packet.clone());
        self.fabric.send(packet)?;
        if let Some(copy) = copy {
            // Without room the copy is dropped.
            let _ = self.fabric.send(copy);
        }
        self.release_if(|held| held.reordered && held.packet.header.source_qpn == from);
        Ok(())
    }

    fn peer_is_busy(&mut self, to: Destination) -> bool {
        self.fabric.peer_is_busy(to)
    }

    fn generation_of(&mut self, slot: u8) -> Option<u32> {
        self.fabric.generation_of(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::port::Port;
    use crate::fabric::tests::packet;

    struct Fixture {
        wire: FaultyWire,
        port: Port,
    }

    impl Fixture {
        fn new(spec: &str) -> Self {
            Self {
                wire: FaultyWire::new(&spec.parse().unwrap()),
                port: Port::without_peers(5),
            }
        }

        fn send(&mut self, now: Nanos, psns: impl IntoIterator<Item = u32>) {
            for psn in psns {
                let mut tx = self.wire.transmit_over(&mut self.port, now);
                tx.send(packet(5, 5, psn, b"x")).unwrap();
            }
        }

        fn release(&mut self, now: Nanos) -> bool {
            self.wire.transmit_over(&mut self.port, now).release()
        }

        fn arrived(&mut self) -> Vec<u32> {
            std::iter::from_fn(|| self.port.receive())
                .map(|packet| packet.header.psn)
                .collect()
        }
    }

    #[test]
    fn a_wire_without_faults_changes_nothing() {
        let mut fixture = Fixture::new("seed=1");
        fixture.send(0, 0..100);
        assert_eq!(fixture.arrived(), (0..100).collect::<Vec<_>>());
        assert!(fixture.wire.take_device_faults().is_empty());
    }

    #[test]
    fn packets_are_dropped_and_duplicated_as_specified() {
        let mut fixture = Fixture::new("drop@2,dup@3");
        fixture.send(0, 1..=4);
        assert_eq!(fixture.arrived(), [1, 3, 3, 4]);
    }

    #[test]
    fn a_delayed_packet_arrives_when_it_is_due() {
        let mut fixture = Fixture::new("delay@1:7us,dup@1");
        fixture.send(100, 1..=2);
        assert_eq!(fixture.arrived(), [2]);
        assert_eq!(fixture.wire.next_deadline(100), Some(7_100));
        assert!(!fixture.release(7_099));
        assert!(fixture.release(7_100));
        assert_eq!(fixture.arrived(), [1, 1], "twice, because of dup@1");
        assert_eq!(fixture.wire.next_deadline(7_100), None);
    }

    #[test]
    fn a_delayed_packet_that_finds_no_room_does_not_wake_the_nic_again_and_again() {
        let mut fixture = Fixture::new("delay@1:7us");
        fixture.send(0, 0..=1024);
        assert!(!fixture.release(7_000));
        assert_eq!(fixture.wire.next_deadline(7_000), None);
        assert_eq!(fixture.arrived().len(), 1024);
        assert!(fixture.release(7_000));
        let mut at_once = Fixture::new("delay@1:0ns");
        at_once.send(5, [0]);
        assert_eq!(at_once.wire.next_deadline(5), Some(6));
    }

    #[test]
    fn a_reordered_packet_follows_the_next_one_or_is_sent_after_the_timeout() {
        let mut fixture = Fixture::new("reorder@1,reorder@3");
        fixture.send(0, 1..=3);
        assert_eq!(fixture.arrived(), [2, 1]);
        assert!(fixture.release(REORDER_TIMEOUT));
        assert_eq!(fixture.arrived(), [3]);
    }

    #[test]
    fn a_packet_that_finds_no_room_is_counted_when_it_is_accepted() {
        let mut fixture = Fixture::new("drop@1025");
        let mut sent = 0;
        while fixture
            .wire
            .transmit_over(&mut fixture.port, 0)
            .has_room(packet(5, 5, 0, b"").header.to())
        {
            fixture.send(0, [sent]);
            sent += 1;
        }
        assert_eq!(sent, 1024);
        let mut tx = fixture.wire.transmit_over(&mut fixture.port, 0);
        assert!(tx.send(packet(5, 5, sent, b"")).is_err());
        assert_eq!(fixture.arrived().len(), 1024);
        fixture.send(0, [sent, sent + 1]);
        assert_eq!(
            fixture.arrived(),
            [sent + 1],
            "the 1025th accepted packet is dropped"
        );
    }

    #[test]
    fn a_wire_with_too_many_delayed_packets_is_full() {
        let mut fixture = Fixture::new("delay=1:1s");
        fixture.send(0, 0..MAX_HELD as u32);
        assert!(
            !fixture
                .wire
                .transmit_over(&mut fixture.port, 0)
                .has_room(packet(5, 5, 0, b"").header.to())
        );
    }

    #[test]
    fn device_faults_name_the_sender_of_the_packet() {
        let mut fixture = Fixture::new("kill-qp@1,port-flap@2:3ms,gid-change@2,device-fatal@3");
        fixture.send(0, 1..=4);
        let qpn = packet(5, 5, 1, b"").header.source_qpn;
        let port = PortAddress { device: 0, port: 1 };
        assert_eq!(
            fixture.wire.take_device_faults(),
            [
                DeviceFault::KillQp(qpn),
                DeviceFault::PortFlap(port, 3_000_000),
                DeviceFault::GidChange(port),
                DeviceFault::DeviceFatal(0)
            ]
        );
        assert!(fixture.wire.take_device_faults().is_empty());
    }
}
