//! The NIC together with the injected faults: lost packets, and QPs, ports and
//! devices that fail.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use crate::capture::Capture;
use crate::cm::Agent;
use crate::fabric::attachment::FabricError;
use crate::fabric::counters::Counter;
use crate::fabric::packet::{Destination, Packet, Transmit};
use crate::fabric::port::Port;
use crate::fabric::slow_link::SlowLink;
use crate::faults::FaultSpec;
use crate::faults::nic_faults::SeededFaults;
use crate::faults::wire::{DeviceFault, FaultyWire};
use crate::log::warn;
use crate::nic::{Nic, Progress, earlier};
use crate::nldev;
use crate::runner::{Budget, Driver};
use crate::spec::{Nanos, PortAddress, PortSet, UarWrite};

/// Interval in nanoseconds at which a send to a full ring is retried: if the
/// reader was killed, no wake-up reports room.
const RETRY_INTERVAL: Nanos = 2_000_000;

/// The unit that a runner drives: a NIC, and the fault injection between the
/// NIC and the fabric.
pub struct Hardware {
    nic: Nic,
    faults: Option<Faults>,
    /// To other hosts, if it is slower than the NIC.
    link: Option<SlowLink>,
    /// Records what the NIC sends, before faults change it.
    capture: Option<Capture>,
    management: Management,
    /// The ports that `mlx5-emu port` has switched off.
    switched_off: PortSet,
}

/// The communication manager, once a program uses it, and its packets.
#[derive(Default)]
struct Management {
    agent: Option<Arc<dyn Agent>>,
    /// Packets that the agent has not taken yet.
    arrived: Vec<Packet>,
    /// The failed devices that the agent knows of, one bit each.
    failed: u32,
    /// The ports that are down, as the agent knows.
    down: PortSet,
}

struct Faults {
    wire: FaultyWire,
    /// When ports that a fault has taken down come up again.
    port_recoveries: Vec<(Nanos, PortAddress)>,
}

impl Hardware {
    /// Returns a NIC without faults.
    #[must_use]
    pub(crate) fn new(nic: Nic) -> Self {
        Self {
            nic,
            faults: None,
            link: None,
            capture: None,
            management: Management::default(),
            switched_off: PortSet::default(),
        }
    }

    /// Takes down the ports that are switched off, and brings up those that are no
    /// longer. Writes a report if it is requested. Returns whether there was a change.
    pub(crate) fn follow_fabric(&mut self, fabric: &Port) -> bool {
        let Some(off) = fabric.take_switched_ports() else {
            return false;
        };
        for port in self.switched_off.differences(off) {
            self.nic.set_port(port, !off.contains(port));
        }
        self.switched_off = off;
        if let Some(attachment) = fabric.attachment() {
            attachment.report(&self.report());
        }
        true
    }

    /// Returns the report of the objects of this process.
    pub(crate) fn report(&self) -> Vec<u8> {
        let mut resources = self.nic.resources();
        if let Some(agent) = &self.management.agent {
            resources.extend(agent.resources());
        }
        nldev::report(&resources)
    }

    /// Captures all packets that are sent from now on.
    pub(crate) fn set_capture(&mut self, capture: Capture) {
        self.capture = Some(capture);
    }

    /// Sends packets to other hosts over a link from now on.
    pub(crate) fn set_link(&mut self, link: Option<SlowLink>) {
        self.link = link;
    }

    /// Sets the agent that exchanges management packets. It runs with the NIC
    /// from now on.
    pub fn set_agent(&mut self, agent: Arc<dyn Agent>) {
        self.management.down = self.nic.down_ports();
        agent.ports_changed(self.management.down);
        self.management.agent = Some(agent);
    }

    /// Ends the devices if the fabric is lost, and warns of its errors.
    fn report_errors(&mut self, port: &mut Port) {
        if port.is_lost() {
            self.nic
                .end_all_devices("the shared memory of the fabric is lost");
        }
        if let Some(error) = port.take_error() {
            let subject = match error {
                FabricError::Lost(_) => "fabric lost",
                FabricError::Unreachable { .. } | FabricError::Unreadable { .. } => "fabric",
            };
            warn(subject, &error.to_string());
        }
    }

    /// Counts packets of other hosts that were dropped, at the first port: those that are no
    /// packets name none.
    fn count_dropped(&self, [icrc, others]: [u64; 2]) {
        if icrc | others != 0 {
            let counts = [
                (Counter::IcrcErrors, icrc),
                (Counter::ReceiveFaults, others),
            ];
            let at = PortAddress { device: 0, port: 1 };
            self.nic.counters().add(at, &counts);
        }
    }

    /// Replaces the injected faults. The counters start again at zero, packets
    /// that the wire delays are lost, and ports that a fault has taken down come up.
    pub fn set_faults(&mut self, spec: Option<&FaultSpec>) {
        if let Some(before) = self.faults.take() {
            for (_, port) in before.port_recoveries {
                let is_off = self.switched_off.contains(port);
                self.nic.set_port(port, !is_off);
            }
        }
        let spec = spec.filter(|spec| !spec.is_empty());
        self.nic
            .set_fault_injector(spec.map(|spec| Box::new(SeededFaults::new(spec)) as _));
        self.faults = spec.map(|spec| Faults {
            wire: FaultyWire::new(spec),
            port_recoveries: Vec::new(),
        });
    }
}

impl Management {
    fn work(&mut self, nic: &Nic, now: Nanos, tx: &mut dyn Transmit) -> Progress {
        let Some(agent) = &self.agent else {
            self.arrived.clear();
            return Progress::default();
        };
        let new = nic.failed_devices() & !self.failed;
        self.failed |= new;
        let devices = 0..u32::BITS as u8;
        for device in devices.filter(|device| new & 1 << device != 0) {
            agent.device_failed(device);
        }
        let down = nic.down_ports();
        if down != self.down {
            self.down = down;
            agent.ports_changed(down);
        }
        agent.work(now, &mut self.arrived, &mut PortCheck { nic, tx })
    }
}

/// Drops management packets of ports that are down.
struct PortCheck<'a> {
    nic: &'a Nic,
    tx: &'a mut dyn Transmit,
}

impl Transmit for PortCheck<'_> {
    fn has_room(&mut self, to: Destination) -> bool {
        self.tx.has_room(to)
    }

    fn send(&mut self, packet: Packet) -> Result<(), Packet> {
        let (at, octets) = (packet.header.source, packet.octets());
        if self.nic.port_is_up(at) {
            self.tx.send(packet)?;
            self.nic.counters().sent(at, octets);
        }
        Ok(())
    }

    fn generation_of(&mut self, slot: u8) -> Option<u32> {
        self.tx.generation_of(slot)
    }
}

impl Faults {
    /// Applies the device faults that packets have triggered, and brings up the
    /// ports that are due and not switched off. Returns whether anything changed.
    fn apply_device_faults(&mut self, nic: &mut Nic, switched_off: PortSet, now: Nanos) -> bool {
        let device_faults = self.wire.take_device_faults();
        let mut worked = !device_faults.is_empty();
        for fault in device_faults {
            match fault {
                // The QP may have been destroyed since.
                DeviceFault::KillQp(qpn) => drop(nic.fail_qp(qpn)),
                DeviceFault::PortFlap(port, time) => {
                    nic.set_port(port, false);
                    self.port_recoveries.push((now.saturating_add(time), port));
                }
                DeviceFault::GidChange(port) => nic.change_gids(port),
                DeviceFault::DeviceFatal(device) => {
                    nic.end_device(device, "the fault device-fatal of --faults");
                }
            }
        }
        self.port_recoveries.retain(|&(due, port)| {
            let waits = due > now;
            if !waits {
                nic.set_port(port, !switched_off.contains(port));
                worked = true;
            }
            waits
        });
        worked
    }

    fn next_deadline(&self, now: Nanos) -> Option<Nanos> {
        let ports = self.port_recoveries.iter().map(|&(due, _)| due);
        ports.chain(self.wire.next_deadline(now)).min()
    }
}

impl Deref for Hardware {
    type Target = Nic;

    fn deref(&self) -> &Nic {
        &self.nic
    }
}

impl DerefMut for Hardware {
    fn deref_mut(&mut self) -> &mut Nic {
        &mut self.nic
    }
}

impl Driver for Hardware {
    fn run(
        &mut self,
        doorbells: &[UarWrite],
        port: &mut Port,
        now: Nanos,
        budget: Budget,
    ) -> Progress {
        for doorbell in doorbells {
            self.nic.doorbell(doorbell);
        }
        let changed = self.follow_fabric(port);
        let mut progress = Progress::default();
        for _ in 0..budget.rounds {
            let mut left = budget.packets;
            while left > 0
                && let Some(packet) = port.receive()
            {
                if let Some(packet) = self.nic.receive(packet) {
                    self.management.arrived.push(packet);
                }
                left -= 1;
            }
            // Through what there is of capture, faulty wire and link.
            let (mut slow, mut wire, mut tap, mut released) = (None, None, None, false);
            let tx: &mut dyn Transmit = match &mut self.link {
                None => port,
                Some(link) => {
                    let slow = slow.insert(link.transmit_over(port, now));
                    released = slow.release();
                    slow
                }
            };
            let tx: &mut dyn Transmit = match &mut self.faults {
                None => tx,
                Some(faults) => {
                    let wire = wire.insert(faults.wire.transmit_over(tx, now));
                    released |= wire.release();
                    wire
                }
            };
            let tx: &mut dyn Transmit = match &mut self.capture {
                None => tx,
                Some(capture) => tap.insert(capture.transmit_over(tx)),
            };
            progress = self.nic.work(now, tx, budget.packets);
            progress = progress.and(self.management.work(&self.nic, now, tx));
            if let Some(faults) = &mut self.faults {
                released |= faults.apply_device_faults(&mut self.nic, self.switched_off, now);
                progress.next_deadline = earlier(progress.next_deadline, faults.next_deadline(now));
            }
            if let Some(link) = &self.link {
                progress.next_deadline = earlier(progress.next_deadline, link.next_deadline(now));
            }
            progress.worked |= released | (left == 0);
            if !port.has_own_packets() {
                break;
            }
        }
        progress.worked |= changed | port.has_own_packets();
        self.count_dropped(port.take_dropped());
        port.served();
        let retry = port.take_send_blocked().then_some(now + RETRY_INTERVAL);
        progress.next_deadline = earlier(progress.next_deadline, retry);
        self.report_errors(port);
        progress
    }

    fn stop(&mut self, port: &mut Port, now: Nanos) {
        if let Some(link) = &mut self.link {
            // Acknowledgements, among others, that have left the program.
            link.transmit_over(port, Nanos::MAX).release();
        }
        if let Some(agent) = &self.management.agent {
            agent.stop();
            let mut tap = None;
            let tx: &mut dyn Transmit = match &mut self.capture {
                None => port,
                Some(capture) => tap.insert(capture.transmit_over(port)),
            };
            self.management.work(&self.nic, now, tx);
        }
    }
}
