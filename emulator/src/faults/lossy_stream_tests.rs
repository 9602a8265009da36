//! Long streams of requests over a permanently faulty wire: since progress resets the
//! retry counter, a reliable connection delivers everything.

use super::nic_faults::SeededFaults;
use super::wire::FaultyWire;
use crate::nic::tests::fixtures::*;
use crate::spec::*;

/// Time of one step: about the time of one packet.
const STEP: u64 = 1_000;
/// Number of requests that are outstanding at a time.
const MAX_UNACKED_PSNS: usize = 16;

struct Stream {
    pair: Pair,
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
        let spec = spec.parse::<super::FaultSpec>().unwrap();
        let other = spec.clone().with_seed(99);
        let mut pair = Pair::with_attributes(attr);
        let receiver = &mut pair.b.host.nic;
        receiver.set_fault_injector(Some(Box::new(SeededFaults::new(&spec))));
        Self {
            pair,
            wires: [FaultyWire::new(&spec), FaultyWire::new(&other)],
        }
    }

    /// Runs both NICs as if in parallel: each receives one packet and works, then the
    /// time advances by [`STEP`].
    fn step(&mut self) {
        let Pair { a, b, wire, now } = &mut self.pair;
        for _ in 0..2 {
            if let Some(packet) = wire.next() {
                let to_a = packet.header.destination_qpn.0 >> 16 == a.qp.qpn.0 >> 16;
                let peer = if to_a { &mut *a } else { &mut *b };
                peer.host.nic.receive(packet);
            }
        }
        for (peer, wire_of_peer) in [a, b].into_iter().zip(&mut self.wires) {
            let mut tx = wire_of_peer.transmit_over(wire, *now);
            tx.release();
            peer.host.nic.work(*now, &mut tx, 4);
        }
        *now += STEP;
    }

    /// Advances the time to the next deadline if both NICs are idle.
    fn skip(&mut self) {
        let Pair { a, b, wire, now } = &mut self.pair;
        if !wire.packets.is_empty() {
            return;
        }
        let mut next = u64::MAX;
        for (peer, wire_of_peer) in [a, b].into_iter().zip(&mut self.wires) {
            let mut tx = wire_of_peer.transmit_over(wire, *now);
            let released = tx.release();
            let progress = peer.host.nic.work(*now, &mut tx, 4);
            if released || progress.worked {
                return;
            }
            let deadlines = [progress.next_deadline, wire_of_peer.next_deadline(*now)];
            next = deadlines.into_iter().flatten().fold(next, u64::min);
        }
        if next != u64::MAX {
            *now = next.max(*now);
        }
    }

    /// Posts `count` requests of one opcode and size, and checks that all complete.
    fn deliver(mut self, opcode: u8, size: u32, count: usize) {
        let mut posted = 0;
        let mut done = 0;
        let mut idle = 0;
        let remote_data = self.pair.b.fill(0, size as usize, 7);
        while done < count {
            while posted < count && posted < done + MAX_UNACKED_PSNS {
                let raddr_segment = self.pair.b.raddr_segment(0);
                let local = self.pair.a.data_segment(0, size);
                if opcode == SEND {
                    let receive = self.pair.b.data_segment(0, size);
                    self.pair.b.qp.post_receive(&[receive]);
                    self.pair.a.post(SEND, SIGNALLED, &[local]);
                } else {
                    self.pair.a.post(opcode, SIGNALLED, &[raddr_segment, local]);
                }
                posted += 1;
            }
            self.step();
            self.skip();
            self.pair.b.cq.poll_all();
            idle += 1;
            for cqe in self.pair.a.cq.poll_all() {
                assert_eq!(cqe.syndrome, OK, "request {done} of {count}: {cqe:?}");
                done += 1;
                idle = 0;
            }
            assert!(
                idle < 1_000_000,
                "request {done} of {count} does not complete"
            );
            if self.pair.wire.sent.len() > 100_000 {
                self.pair.wire.sent.clear();
            }
        }
        if opcode == READ {
            assert_eq!(self.pair.a.memory.get(0, size as usize), remote_data);
        }
        self.pair.assert_no_violations();
    }
}

#[test]
fn a_reliable_connection_delivers_streams_over_a_permanently_faulty_wire() {
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
