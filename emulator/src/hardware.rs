//! The NIC with what befalls it: a bad wire, QPs, ports and devices that fail.

use std::ops::{Deref, DerefMut};

use crate::fabric::attachment::Trouble;
use crate::fabric::packet::{Packet, Transmit};
use crate::fabric::port::Port;
use crate::faults::FaultSpec;
use crate::faults::mishaps::Decided;
use crate::faults::wire::{Order, Wire};
use crate::nic::spec::{PortAddress, UarWrite};
use crate::nic::{Nanos, Nic, Progress};
use crate::runner::stepped::Stepped;
use crate::runner::{BATCH, Driver};
use crate::uverbs::complain;

/// What a runner moves: a NIC, and between it and the fabric the faults.
pub struct Hardware {
    nic: Nic,
    faults: Option<Faults>,
}

struct Faults {
    wire: Wire,
    /// Ports that come up again, and when.
    up_again: Vec<(Nanos, PortAddress)>,
}

impl Hardware {
    /// A NIC to which nothing happens.
    #[must_use]
    pub fn new(nic: Nic) -> Self {
        Self { nic, faults: None }
    }

    /// From now on these faults happen, counted anew; what the wire holds
    /// back is lost, and ports that are down come up.
    pub fn set_faults(&mut self, spec: Option<&FaultSpec>) {
        for (_, port) in self.faults.take().into_iter().flat_map(|it| it.up_again) {
            self.nic.set_port(port, true);
        }
        let spec = spec.filter(|spec| !spec.is_empty());
        self.nic
            .set_mishaps(spec.map(|spec| Box::new(Decided::new(spec)) as _));
        self.faults = spec.map(|spec| Faults {
            wire: Wire::new(spec),
            up_again: Vec::new(),
        });
    }

    fn work_at(&mut self, now: Nanos, fabric: &mut dyn Transmit, budget: usize) -> Progress {
        let Some(faults) = &mut self.faults else {
            return self.nic.work(now, fabric, budget);
        };
        let mut over = faults.wire.over(fabric, now);
        let released = over.release();
        let mut progress = self.nic.work(now, &mut over, budget);
        progress.worked |= released | faults.follow(&mut self.nic, now);
        progress.next_deadline = [progress.next_deadline, faults.next_deadline()]
            .into_iter()
            .flatten()
            .min();
        progress
    }
}

impl Faults {
    /// Does what packets have ordered, and what has become due of it.
    fn follow(&mut self, nic: &mut Nic, now: Nanos) -> bool {
        let orders = self.wire.take_orders();
        let mut worked = !orders.is_empty();
        for order in orders {
            match order {
                // A QP that was destroyed meanwhile cannot fail any more.
                Order::KillQp(qpn) => drop(nic.fail_qp(qpn)),
                Order::PortFlap(port, time) => {
                    nic.set_port(port, false);
                    self.up_again.push((now.saturating_add(time), port));
                }
                Order::GidChange(port) => nic.change_gids(port),
                Order::DeviceFatal(device) => nic.fail_device(device),
            }
        }
        self.up_again.retain(|&(due, port)| {
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
        let ports = self.up_again.iter().map(|&(due, _)| due);
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
        if let Some(trouble) = port.take_trouble() {
            let subject = match trouble {
                Trouble::Lost(_) => "fabric lost",
                Trouble::Unreachable { .. } | Trouble::Unreadable { .. } => "fabric",
            };
            complain(subject, &trouble.to_string());
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
