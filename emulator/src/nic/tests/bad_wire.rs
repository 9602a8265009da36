//! Long streams of requests over wires that stay bad: with retries that are
//! refilled by progress, a reliable connection gets everything across.

use super::rig::*;
use crate::faults::nic_faults::SeededFaults;
use crate::faults::wire::FaultyWire;
use crate::nic::spec::*;

/// One step of time: about what a packet takes.
const STEP: u64 = 1_000;
/// Requests that are posted at a time.
const MAX_UNACKED_PSNS: usize = 16;

struct Stream {
    world: World,
    wires: [FaultyWire; 2],
}

impl Stream {
    fn new(spec: &str) -> Self {
        let attr = QpAttr {
            path_mtu: 1,
            max_rd_atomic: 16,
            max_dest_rd_atomic: 16,
            ..attributes()
        };
        let spec = spec.parse::<crate::faults::FaultSpec>().unwrap();
        let other = spec.clone().with_seed(99);
        let mut world = World::with(attr);
        let receiver = &mut world.b.host.nic;
        receiver.set_fault_injector(Some(Box::new(SeededFaults::new(&spec))));
        Self {
            world,
            wires: [FaultyWire::new(&spec), FaultyWire::new(&other)],
        }
    }

    /// As two NICs at work at the same time: each takes one packet, works, and
    /// then a moment passes.
    fn step(&mut self) {
        let World { a, b, wire, now } = &mut self.world;
        for _ in 0..2 {
            if let Some(packet) = wire.next() {
                let to_a = packet.header.destination_qpn.0 >> 16 == a.qp.qpn.0 >> 16;
                let end = if to_a { &mut *a } else { &mut *b };
                end.host.nic.receive(packet, wire);
            }
        }
        for (end, bad) in [a, b].into_iter().zip(&mut self.wires) {
            let mut tx = bad.transmit_over(wire, *now);
            tx.release();
            end.host.nic.work(*now, &mut tx, 4);
        }
        *now += STEP;
    }

    /// Nothing moves before then: time goes there at once.
    fn skip(&mut self) {
        let World { a, b, wire, now } = &mut self.world;
        if !wire.packets.is_empty() {
            return;
        }
        let mut next = u64::MAX;
        for (end, bad) in [a, b].into_iter().zip(&mut self.wires) {
            let progress = end
                .host
                .nic
                .work(*now, &mut bad.transmit_over(wire, *now), 4);
            if progress.worked {
                return;
            }
            let deadlines = [progress.next_deadline, bad.next_deadline()];
            next = deadlines.into_iter().flatten().fold(next, u64::min);
        }
        if next != u64::MAX {
            *now = next.max(*now);
        }
    }

    /// `count` requests of one kind and size, all of which must be done.
    fn deliver(mut self, opcode: u8, size: u32, count: usize) {
        let mut posted = 0;
        let mut done = 0;
        let mut idle = 0;
        let there = self.world.b.fill(0, size as usize, 7);
        while done < count {
            while posted < count && posted < done + MAX_UNACKED_PSNS {
                let remote = self.world.b.remote(0);
                let local = self.world.a.segment(0, size);
                if opcode == SEND {
                    let receive = self.world.b.segment(0, size);
                    self.world.b.qp.post_receive(&[receive]);
                    self.world.a.post(SEND, SIGNALLED, &[local]);
                } else {
                    self.world.a.post(opcode, SIGNALLED, &[remote, local]);
                }
                posted += 1;
            }
            self.step();
            self.skip();
            self.world.b.cq.all();
            idle += 1;
            for cqe in self.world.a.cq.all() {
                assert_eq!(cqe.syndrome, OK, "request {done} of {count}: {cqe:?}");
                done += 1;
                idle = 0;
            }
            assert!(idle < 1_000_000, "request {done} of {count} hangs");
            if self.world.wire.sent.len() > 100_000 {
                self.world.wire.sent.clear();
            }
        }
        if opcode == READ {
            assert_eq!(self.world.a.memory.get(0, size as usize), there);
        }
        self.world.assert_no_violations();
    }
}

#[test]
fn streams_get_across_wires_that_stay_bad() {
    for spec in [
        "delay=0.01:10us",
        "delay=0.05:100us",
        "delay=0.05:1ms",
        "drop=0.01",
        "dup=0.05",
        "reorder=0.05",
        "rnr=0.05",
        "seed=3,drop=0.005,dup=0.05,reorder=0.02,delay=0.05:100us,rnr=0.02",
        "seed=1,drop=0.01,dup=0.05,reorder=0.02,delay=0.05:100us,rnr=0.02",
    ] {
        for opcode in [SEND, WRITE, READ] {
            for size in [64, 1000, 4096] {
                println!("{spec}: opcode {opcode:#x}, {size} bytes");
                Stream::new(spec).deliver(opcode, size, 300);
            }
        }
    }
}
