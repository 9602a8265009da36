//! The NIC together with the injected faults: lost packets, and QPs, ports and
//! devices that fail.

use std::ops::{Deref, DerefMut};

use crate::fabric::attachment::FabricError;
use crate::fabric::packet::{Packet, Transmit};
use crate::fabric::port::Port;
use crate::faults::FaultSpec;
use crate::faults::nic_faults::SeededFaults;
use crate::faults::wire::{DeviceFault, FaultyWire};
use crate::nic::spec::{PortAddress, UarWrite};
use crate::nic::{Nanos, Nic, Progress};
use crate::runner::stepped::Stepped;
use crate::runner::{BATCH, Driver};
use crate::uverbs::warn;

/// The unit that a runner drives: a NIC, and the fault injection between the
/// NIC and the fabric.
pub struct Hardware {
    nic: Nic,
    faults: Option<Faults>,
}

struct Faults {
    wire: FaultyWire,
    /// When ports that a fault has taken down come up again.
    port_recoveries: Vec<(Nanos, PortAddress)>,
}

impl Hardware {
    /// Returns a NIC without faults.
    #[must_use]
    pub fn new(nic: Nic) -> Self {
        Self { nic, faults: None }
    }

    /// Replaces the injected faults. The counters start again at zero, packets
    /// that the wire delays are lost, and ports that are down come up.
    pub fn set_faults(&mut self, spec: Option<&FaultSpec>) {
        for (_, port) in self
            .faults
            .take()
            .into_iter()
            .flat_map(|it| it.port_recoveries)
        {
            self.nic.set_port(port, true);
        }
        let spec = spec.filter(|spec| !spec.is_empty());
        self.nic
            .set_fault_injector(spec.map(|spec| Box::new(SeededFaults::new(spec)) as _));
        self.faults = spec.map(|spec| Faults {
            wire: FaultyWire::new(spec),
            port_recoveries: Vec::new(),
        });
    }

    fn work_at(&mut self, now: Nanos, fabric: &mut dyn Transmit, budget: usize) -> Progress {
        let Some(faults) = &mut self.faults else {
            return self.nic.work(now, fabric, budget);
        };
        let mut tx = faults.wire.transmit_over(fabric, now);
        let released = tx.release();
        let mut progress = self.nic.work(now, &mut tx, budget);
        progress.worked |= released | faults.apply_device_faults(&mut self.nic, now);
        progress.next_deadline = [progress.next_deadline, faults.next_deadline()]
            .into_iter()
            .flatten()
            .min();
        progress
    }
}

impl Faults {
    /// Applies the device faults that packets have triggered, and brings up the
    /// ports that are due. Returns whether anything changed.
    fn apply_device_faults(&mut self, nic: &mut Nic, now: Nanos) -> bool {
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
                DeviceFault::DeviceFatal(device) => nic.fail_device(device),
            }
        }
        self.port_recoveries.retain(|&(due, port)| {
            let waits = due > now;
            if !waits {
                nic.set_port(port, true);
                worked = true;
            }
            waits
        });
        worked
    }

    fn next_deadline(&self) -> Option<Nanos> {
        let ports = self.port_recoveries.iter().map(|&(due, _)| due);
        ports.chain(self.wire.next_deadline()).min()
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
    fn run(&mut self, doorbells: &[UarWrite], port: &mut Port, now: Nanos) -> Progress {
        for doorbell in doorbells {
            self.nic.doorbell(doorbell);
        }
        let mut received = false;
        for _ in 0..BATCH {
            let Some(packet) = port.receive() else { break };
            self.nic.receive(packet, port);
            received = true;
        }
        let mut progress = self.work_at(now, port, BATCH);
        progress.worked |= received;
        port.served();
        if port.is_lost() {
            self.nic.fail_all_devices();
        }
        if let Some(error) = port.take_error() {
            let subject = match error {
                FabricError::Lost(_) => "fabric lost",
                FabricError::Unreachable { .. } | FabricError::Unreadable { .. } => "fabric",
            };
            warn(subject, &error.to_string());
        }
        progress
    }
}

impl Stepped for Hardware {
    fn doorbell(&mut self, write: &UarWrite) {
        self.nic.doorbell(write);
    }

    fn receive(&mut self, packet: Packet, tx: &mut dyn Transmit) {
        self.nic.receive(packet, tx);
    }

    fn work(&mut self, now: Nanos, tx: &mut dyn Transmit, budget: usize) -> Progress {
        self.work_at(now, tx, budget)
    }
}
