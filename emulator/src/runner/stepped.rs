//! The NIC moved by hand: no thread, no real time, the same every time.

use std::time::Duration;

use crate::fabric::packet::{Packet, Transmit};
use crate::fabric::port::Port;
use crate::nic::spec::UarWrite;
use crate::nic::{Nanos, Progress};
use crate::uar::UarBank;

/// What a stepper moves: the NIC, or in tests something simpler.
pub trait Stepped {
    /// A store on a doorbell page.
    fn doorbell(&mut self, write: &UarWrite);
    /// A packet.
    fn receive(&mut self, packet: Packet, tx: &mut dyn Transmit);
    /// One unit of work, if there is any.
    fn work(&mut self, now: Nanos, tx: &mut dyn Transmit, budget: usize) -> Progress;
}

/// The time of a NIC that is moved by hand.
#[derive(Debug)]
pub struct Stepper {
    now: Nanos,
    deadline: Option<Nanos>,
}

impl Default for Stepper {
    /// At the beginning of time.
    fn default() -> Self {
        Self {
            now: 1,
            deadline: None,
        }
    }
}

impl Stepper {
    /// At a certain time.
    #[must_use]
    pub fn at(now: Nanos) -> Self {
        Self {
            now,
            deadline: None,
        }
    }

    /// Takes the doorbells, at most one packet, and does at most one unit of
    /// work. `false` when there was nothing to do: only a doorbell, a
    /// command or the passing of time changes that.
    pub fn step(&mut self, nic: &mut impl Stepped, port: &mut Port, bank: &UarBank) -> bool {
        let mut moved = false;
        bank.scan(&mut |write| {
            nic.doorbell(&write);
            moved = true;
        });
        if let Some(packet) = port.receive() {
            nic.receive(packet, port);
            moved = true;
        }
        let progress = nic.work(self.now, port, 1);
        self.deadline = progress.next_deadline;
        port.served();
        moved | progress.worked
    }

    /// Steps until there is nothing to do; answers how many steps it took.
    pub fn run_until_idle(
        &mut self,
        nic: &mut impl Stepped,
        port: &mut Port,
        bank: &UarBank,
    ) -> usize {
        let mut steps = 0;
        while self.step(nic, port, bank) {
            steps += 1;
        }
        steps
    }

    /// Lets time pass, stopping to run whatever falls due on the way.
    pub fn advance(
        &mut self,
        nic: &mut impl Stepped,
        port: &mut Port,
        bank: &UarBank,
        by: Duration,
    ) {
        let by = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        let end = self.now.saturating_add(by);
        self.run_until_idle(nic, port, bank);
        while let Some(due) = self.deadline.filter(|&due| due <= end) {
            // A deadline in the past must not hold time up.
            self.now = due.max(self.now + 1).min(end);
            self.run_until_idle(nic, port, bank);
            if self.now == end {
                return;
            }
        }
        self.now = end;
        self.run_until_idle(nic, port, bank);
    }
}

#[cfg(test)]
#[path = "stepped_tests.rs"]
mod tests;
