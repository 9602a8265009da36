//! Tests of the stepped mode with a simple model of a NIC.

use std::os::fd::AsFd;

use super::*;
use crate::fabric::packet::Transmit;
use crate::fabric::tests::packet;
use crate::nic::Progress;
use crate::spec::UarWrite;
use crate::uar::tests::{App, name};

/// Sends two packets to itself for each doorbell, and has a timer every 10 µs.
#[derive(Default)]
struct ScriptedDriver {
    log: Vec<String>,
    to_send: u32,
    due: Nanos,
}

impl Driver for ScriptedDriver {
    fn run(
        &mut self,
        doorbells: &[UarWrite],
        port: &mut Port,
        now: Nanos,
        budget: Budget,
    ) -> Progress {
        for write in doorbells {
            self.log.push(format!("doorbell {}", write.offset));
            self.to_send += 2;
        }
        let mut worked = false;
        for packet in (0..budget.packets).map_while(|_| port.receive()) {
            self.log.push(format!("packet {}", packet.header.psn));
            worked = true;
        }
        for _ in 0..budget.packets.min(self.to_send as usize) {
            self.to_send -= 1;
            port.send(packet(1, 1, self.to_send, b"")).unwrap();
            worked = true;
        }
        if now >= self.due {
            self.log.push(format!("timer {now}"));
            self.due = now + 10_000;
            worked = true;
        }
        Progress {
            worked,
            next_deadline: Some(self.due),
        }
    }
}

#[test]
fn stepping_takes_one_packet_and_one_unit_of_work_at_a_time() {
    let app = App::new(1);
    let uar = UarPages::new(None);
    uar.add_page(name(0), app.file.as_fd()).unwrap();
    let mut script = ScriptedDriver {
        due: Nanos::MAX,
        ..ScriptedDriver::default()
    };
    let (mut stepper, mut port) = (Stepper::default(), Port::without_peers(1));
    assert!(!stepper.step(&mut script, &mut port, &uar));
    app.store(0, 0x800, 7);
    assert!(stepper.step(&mut script, &mut port, &uar));
    assert_eq!(script.log, ["doorbell 2048"]);
    assert!(stepper.step(&mut script, &mut port, &uar));
    assert_eq!(script.log, ["doorbell 2048", "packet 1"]);
    assert_eq!(stepper.run_until_idle(&mut script, &mut port, &uar), 1);
    assert_eq!(script.log, ["doorbell 2048", "packet 1", "packet 0"]);
}

#[test]
fn time_advances_from_deadline_to_deadline() {
    let uar = UarPages::new(None);
    let mut script = ScriptedDriver {
        due: 10_000,
        ..ScriptedDriver::default()
    };
    let (mut stepper, mut port) = (Stepper::default(), Port::without_peers(1));
    stepper.advance(&mut script, &mut port, &uar, Duration::from_nanos(9_998));
    assert_eq!(script.log, [""; 0]);
    stepper.advance(&mut script, &mut port, &uar, Duration::from_nanos(25_000));
    assert_eq!(script.log, ["timer 10000", "timer 20000", "timer 30000"]);
}
