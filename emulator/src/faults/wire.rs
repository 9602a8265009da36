//! A bad wire: packets on their way from the NIC to the fabric are lost,
//! doubled, held back; and by the count of packets other things happen.

use super::decisions::Decisions;
use super::spec::{FaultSpec, Kind};
use crate::fabric::packet::{Packet, Transmit};
use crate::nic::Nanos;
use crate::nic::spec::{PortAddress, Qpn};

/// Most packets that are held back at a time; then there is no room.
const MOST_HELD: usize = 4096;
/// How long a packet waits for one to change places with.
const REORDER_PATIENCE: Nanos = 50_000;

/// What is to be done to the NIC because of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// This QP fails.
    KillQp(Qpn),
    /// This port goes down for that long.
    PortFlap(PortAddress, Nanos),
    /// This port's GID table has changed.
    GidChange(PortAddress),
    /// This device fails.
    DeviceFatal(u8),
}

/// A packet that is held back.
#[derive(Debug)]
struct Held {
    due: Nanos,
    /// It goes right behind the next packet of its QP.
    overtaken: bool,
    packet: Packet,
}

/// The state of a wire.
#[derive(Debug)]
pub struct Wire {
    decisions: Decisions,
    /// In the order they were sent.
    held: Vec<Held>,
    orders: Vec<Order>,
}

impl Wire {
    /// A wire as bad as `spec` says.
    #[must_use]
    pub fn new(spec: &FaultSpec) -> Self {
        Self {
            decisions: Decisions::new(spec),
            held: Vec::new(),
            orders: Vec::new(),
        }
    }

    /// The wire before a fabric, for a while at `now`.
    pub fn over<'a>(&'a mut self, fabric: &'a mut dyn Transmit, now: Nanos) -> Over<'a> {
        Over {
            wire: self,
            fabric,
            now,
        }
    }

    /// What is to be done, since this was asked last.
    pub fn take_orders(&mut self) -> Vec<Order> {
        std::mem::take(&mut self.orders)
    }

    /// When a packet that is held back is due.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Nanos> {
        self.held.iter().map(|held| held.due).min()
    }

    fn note_orders(&mut self, packet: &Packet) {
        let from = packet.header.source;
        let orders = [
            (Kind::KillQp, Order::KillQp(packet.header.source_qpn)),
            (
                Kind::PortFlap,
                Order::PortFlap(from, self.decisions.time(Kind::PortFlap)),
            ),
            (Kind::GidChange, Order::GidChange(from)),
            (Kind::DeviceFatal, Order::DeviceFatal(from.device)),
        ];
        for (kind, order) in orders {
            if self.decisions.strikes(kind) {
                self.orders.push(order);
            }
        }
    }
}

/// A bad wire and what lies behind it.
pub struct Over<'a> {
    wire: &'a mut Wire,
    fabric: &'a mut dyn Transmit,
    now: Nanos,
}

impl Over<'_> {
    /// Lets go of what was held long enough; answers whether there was any.
    pub fn release(&mut self) -> bool {
        let now = self.now;
        self.release_if(|held| held.due <= now)
    }

    fn release_if(&mut self, is_free: impl Fn(&Held) -> bool) -> bool {
        let mut released = false;
        let mut index = 0;
        while let Some(held) = self.wire.held.get(index) {
            if is_free(held) && self.fabric.has_room(held.packet.header.destination_qpn) {
                let held = self.wire.held.remove(index);
                // There is room, so it is taken.
                let _ = self.fabric.send(held.packet);
                released = true;
            } else {
                index += 1;
            }
        }
        released
    }

    fn hold(&mut self, packet: Packet, time: Nanos, overtaken: bool) {
        self.wire.held.push(Held {
            due: self.now.saturating_add(time),
            overtaken,
            packet,
        });
    }
}

impl Transmit for Over<'_> {
    fn has_room(&mut self, destination: Qpn) -> bool {
        self.wire.held.len() < MOST_HELD && self.fabric.has_room(destination)
    }

    fn send(&mut self, packet: Packet) -> Result<(), Packet> {
        // A packet that is refused comes again: it is not counted twice.
        if !self.has_room(packet.header.destination_qpn) {
            return Err(packet);
        }
        self.wire.note_orders(&packet);
        let from = packet.header.source_qpn;
        let decisions = &mut self.wire.decisions;
        let [lost, doubled, late, overtaken] =
            [Kind::Drop, Kind::Duplicate, Kind::Delay, Kind::Reorder]
                .map(|kind| decisions.strikes(kind));
        if lost {
            return Ok(());
        }
        if late {
            let time = self.wire.decisions.time(Kind::Delay);
            if doubled {
                self.hold(packet.clone(), time, false);
            }
            self.hold(packet, time, false);
            return Ok(());
        }
        if overtaken {
            self.hold(packet, REORDER_PATIENCE, true);
            return Ok(());
        }
        let again = doubled.then(|| packet.clone());
        self.fabric.send(packet)?;
        if let Some(again) = again {
            // Without room the second is lost, as the second of any two may be.
            let _ = self.fabric.send(again);
        }
        self.release_if(|held| held.overtaken && held.packet.header.source_qpn == from);
        Ok(())
    }

    fn is_unheard(&mut self, destination: Qpn) -> bool {
        self.fabric.is_unheard(destination)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::port::Port;
    use crate::fabric::tests::packet;

    struct Bench {
        wire: Wire,
        port: Port,
    }

    impl Bench {
        fn new(spec: &str) -> Self {
            Self {
                wire: Wire::new(&spec.parse().unwrap()),
                port: Port::alone(5),
            }
        }

        fn send(&mut self, now: Nanos, numbers: impl IntoIterator<Item = u32>) {
            for number in numbers {
                let mut over = self.wire.over(&mut self.port, now);
                over.send(packet(5, 5, number, b"x")).unwrap();
            }
        }

        fn release(&mut self, now: Nanos) -> bool {
            self.wire.over(&mut self.port, now).release()
        }

        fn arrived(&mut self) -> Vec<u32> {
            std::iter::from_fn(|| self.port.receive())
                .map(|packet| packet.header.psn)
                .collect()
        }
    }

    #[test]
    fn a_good_wire_changes_nothing() {
        let mut bench = Bench::new("seed=1");
        bench.send(0, 0..100);
        assert_eq!(bench.arrived(), (0..100).collect::<Vec<_>>());
        assert!(bench.wire.take_orders().is_empty());
    }

    #[test]
    fn packets_are_lost_and_doubled_where_it_was_asked_for() {
        let mut bench = Bench::new("drop@2,dup@3");
        bench.send(0, 1..=4);
        assert_eq!(bench.arrived(), [1, 3, 3, 4]);
    }

    #[test]
    fn a_late_packet_comes_when_it_is_due_and_not_before() {
        let mut bench = Bench::new("delay@1:7us,dup@1");
        bench.send(100, 1..=2);
        assert_eq!(bench.arrived(), [2]);
        assert_eq!(bench.wire.next_deadline(), Some(7_100));
        assert!(!bench.release(7_099));
        assert!(bench.release(7_100));
        assert_eq!(bench.arrived(), [1, 1], "and as often");
        assert_eq!(bench.wire.next_deadline(), None);
    }

    #[test]
    fn a_packet_changes_places_with_the_next_or_goes_alone() {
        let mut bench = Bench::new("reorder@1,reorder@3");
        bench.send(0, 1..=3);
        assert_eq!(bench.arrived(), [2, 1]);
        assert!(bench.release(REORDER_PATIENCE));
        assert_eq!(bench.arrived(), [3]);
    }

    #[test]
    fn a_packet_that_finds_no_room_is_counted_when_it_is_taken() {
        let mut bench = Bench::new("drop@1025");
        let mut sent = 0;
        while bench.wire.over(&mut bench.port, 0).has_room(Qpn(5 << 16)) {
            bench.send(0, [sent]);
            sent += 1;
        }
        assert_eq!(sent, 1024);
        let mut over = bench.wire.over(&mut bench.port, 0);
        assert!(over.send(packet(5, 5, sent, b"")).is_err());
        assert_eq!(bench.arrived().len(), 1024);
        bench.send(0, [sent, sent + 1]);
        assert_eq!(bench.arrived(), [sent + 1], "the 1025th that was taken");
    }

    #[test]
    fn a_wire_that_holds_too_much_has_no_room() {
        let mut bench = Bench::new("delay=1:1s");
        bench.send(0, 0..MOST_HELD as u32);
        assert!(!bench.wire.over(&mut bench.port, 0).has_room(Qpn(5 << 16)));
    }

    #[test]
    fn orders_name_whose_packet_it_was() {
        let mut bench = Bench::new("kill-qp@1,port-flap@2:3ms,gid-change@2,device-fatal@3");
        bench.send(0, 1..=4);
        let qpn = packet(5, 5, 1, b"").header.source_qpn;
        let port = PortAddress { device: 0, port: 1 };
        assert_eq!(
            bench.wire.take_orders(),
            [
                Order::KillQp(qpn),
                Order::PortFlap(port, 3_000_000),
                Order::GidChange(port),
                Order::DeviceFatal(0)
            ]
        );
        assert!(bench.wire.take_orders().is_empty());
    }
}
