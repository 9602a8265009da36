//! The link from the devices to other hosts, with a latency and a bandwidth.

use std::collections::VecDeque;
use std::num::NonZeroU64;

use super::packet::{Destination, Packet, Transmit};
use crate::spec::{Nanos, nanoseconds};

/// What Ethernet adds to a packet, in octets: preamble, header, check sequence and gap.
const FRAME: usize = 8 + 14 + 4 + 12;
/// A port takes no more packets while it needs longer than this for those that it has.
const BACKLOG: Nanos = 100_000;

/// The speed of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Speed {
    /// How long a packet travels, beside the time on the real network.
    pub latency: Nanos,
    /// Bits per second; `None` is as many as the NIC sends.
    pub bandwidth: Option<NonZeroU64>,
}

impl Speed {
    /// Sets what a part of `--wire` names: `latency=10us` or `bandwidth=10gbit`.
    ///
    /// # Errors
    /// Returns what is expected.
    pub(crate) fn set(&mut self, part: &str) -> Result<(), String> {
        match part.split_once('=') {
            Some(("latency", time)) => {
                self.latency = nanoseconds(time)
                    .filter(|time| *time <= 1_000_000_000)
                    .ok_or("latency= takes a time up to 1s, such as 500ns, 10us or 2ms")?;
            }
            Some(("bandwidth", rate)) => {
                self.bandwidth = Some(bits_per_second(rate).ok_or(
                    "bandwidth= takes a rate in bits per second, such as 100mbit, 10gbit",
                )?);
            }
            _ => {
                return Err(format!(
                    "'{part}' is neither latency=TIME nor bandwidth=RATE"
                ));
            }
        }
        Ok(())
    }

    /// Returns how long a port sends a packet.
    fn sending_time(&self, packet: &Packet) -> Nanos {
        let bits = (packet.octets() + FRAME) as u64 * 8;
        self.bandwidth
            .map_or(0, |rate| (bits * 1_000_000_000).div_ceil(rate.get()))
    }
}

fn bits_per_second(text: &str) -> Option<NonZeroU64> {
    let digits = text.find(|it: char| !it.is_ascii_digit())?;
    let unit = match &text[digits..] {
        "kbit" => 1_000,
        "mbit" => 1_000_000,
        "gbit" => 1_000_000_000,
        _ => return None,
    };
    NonZeroU64::new(text[..digits].parse::<u64>().ok()?.checked_mul(unit)?)
}

/// The links of the devices. Packets within a host do not take them.
pub(crate) struct SlowLink {
    speed: Speed,
    /// By device.
    ports: Vec<Port>,
}

#[derive(Default)]
struct Port {
    /// When it has sent all packets that it has.
    idle_at: Nanos,
    /// Packets that have not arrived, and when they do.
    travelling: VecDeque<(Nanos, Packet)>,
}

impl SlowLink {
    /// Returns the links of `devices` devices; `None` if they are as fast as the NIC.
    pub(crate) fn new(speed: Speed, devices: u8) -> Option<Self> {
        let ports = (0..devices).map(|_| Port::default()).collect();
        (speed != Speed::default()).then_some(Self { speed, ports })
    }

    /// Returns a transmitter that sends to `fabric` through the links at time `now`.
    pub(crate) fn transmit_over<'a>(
        &'a mut self,
        fabric: &'a mut dyn Transmit,
        now: Nanos,
    ) -> SlowTransmit<'a> {
        SlowTransmit {
            link: self,
            fabric,
            now,
        }
    }

    /// Returns when the next packet arrives, or a port takes packets again.
    pub(crate) fn next_deadline(&self, now: Nanos) -> Option<Nanos> {
        let arrivals = self
            .ports
            .iter()
            .filter_map(|it| Some(it.travelling.front()?.0));
        let room = self
            .ports
            .iter()
            .map(|it| it.idle_at.saturating_sub(BACKLOG));
        arrivals.chain(room.filter(|at| *at > now)).min()
    }
}

/// Sends packets to other hosts through the links.
pub(crate) struct SlowTransmit<'a> {
    link: &'a mut SlowLink,
    fabric: &'a mut dyn Transmit,
    now: Nanos,
}

impl SlowTransmit<'_> {
    /// Lets the packets arrive whose time has come. Returns whether there were any.
    pub(crate) fn release(&mut self) -> bool {
        let mut released = false;
        for port in &mut self.link.ports {
            while let Some((_, packet)) = port.travelling.pop_front_if(|(due, _)| *due <= self.now)
            {
                // The way to other hosts has room, or loses the packet.
                let _ = self.fabric.send(packet);
                released = true;
            }
        }
        released
    }
}

impl Transmit for SlowTransmit<'_> {
    fn has_room(&mut self, to: Destination) -> bool {
        // Which device it is for is not known: all must have room.
        let is_free = |it: &Port| it.idle_at <= self.now.saturating_add(BACKLOG);
        match to.is_other_host() {
            true => self.link.ports.iter().all(is_free),
            false => self.fabric.has_room(to),
        }
    }

    fn send(&mut self, packet: Packet) -> Result<(), Packet> {
        let port = self
            .link
            .ports
            .get_mut(usize::from(packet.header.source.device));
        let Some(port) = port.filter(|_| packet.header.to().is_other_host()) else {
            return self.fabric.send(packet);
        };
        let speed = self.link.speed;
        port.idle_at = port
            .idle_at
            .max(self.now)
            .saturating_add(speed.sending_time(&packet));
        let due = port.idle_at.saturating_add(speed.latency);
        port.travelling.push_back((due, packet));
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
    use crate::fabric::tests::packet;
    use crate::spec::PortAddress;

    /// Collects what arrives.
    #[derive(Default)]
    struct Far(Vec<u32>);

    impl Transmit for Far {
        fn has_room(&mut self, _: Destination) -> bool {
            true
        }

        fn send(&mut self, packet: Packet) -> Result<(), Packet> {
            self.0.push(packet.header.psn);
            Ok(())
        }
    }

    fn link(parts: &[&str]) -> SlowLink {
        let mut speed = Speed::default();
        parts.iter().for_each(|it| speed.set(it).unwrap());
        SlowLink::new(speed, 1).unwrap()
    }

    fn to_other_host(psn: u32, len: usize) -> Packet {
        let mut packet = packet(5, 6, psn, &vec![0; len]);
        packet.header.source = PortAddress { device: 0, port: 1 };
        packet.header.destination = PortAddress::of_host(0).unwrap();
        packet
    }

    #[test]
    fn a_packet_arrives_after_the_latency_and_one_within_the_host_at_once() {
        let (mut link, mut far) = (link(&["latency=10us"]), Far::default());
        let mut tx = link.transmit_over(&mut far, 5);
        tx.send(to_other_host(1, 8)).unwrap();
        tx.send(to_other_host(2, 8)).unwrap();
        tx.send(packet(5, 6, 3, b"")).unwrap();
        assert!(!tx.release());
        assert_eq!(link.next_deadline(5), Some(10_005));
        assert!(!link.transmit_over(&mut far, 10_004).release());
        assert!(link.transmit_over(&mut far, 10_005).release());
        assert_eq!(far.0, [3, 1, 2]);
        assert_eq!(link.next_deadline(10_005), None);
    }

    #[test]
    fn a_port_sends_one_packet_after_the_other_and_takes_no_more_than_its_backlog() {
        let (mut link, mut far) = (link(&["bandwidth=1gbit", "latency=1ms"]), Far::default());
        let one = to_other_host(0, 1024);
        let time = (one.octets() + FRAME) as Nanos * 8;
        let to = one.header.to();
        let mut tx = link.transmit_over(&mut far, 0);
        let mut sent = 0;
        while tx.has_room(to) {
            tx.send(to_other_host(sent, 1024)).unwrap();
            sent += 1;
        }
        assert_eq!(u64::from(sent), BACKLOG / time + 1);
        let room = u64::from(sent) * time - BACKLOG;
        assert_eq!(link.next_deadline(0), Some(room));
        assert!(link.transmit_over(&mut far, room).has_room(to));
        assert_eq!(link.next_deadline(room), Some(time + 1_000_000));
        link.transmit_over(&mut far, 2 * time + 1_000_000).release();
        assert_eq!(far.0, [0, 1]);
    }

    #[test]
    fn speeds_have_units_and_limits() {
        let mut speed = Speed::default();
        speed.set("bandwidth=100mbit").unwrap();
        assert_eq!(speed.bandwidth, NonZeroU64::new(100_000_000));
        let wrong = [
            "bandwidth=0gbit",
            "bandwidth=10",
            "latency=2s",
            "latency=-1us",
            "loss=1",
            "",
        ];
        for text in wrong {
            assert!(speed.set(text).is_err(), "{text}");
        }
        assert!(SlowLink::new(Speed::default(), 1).is_none());
    }
}
