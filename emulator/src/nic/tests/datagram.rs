//! Datagrams: addresses, keys, the global route header.

use super::receive::TestSrq;
use super::rig::*;
use crate::nic::NicOptions;
use crate::nic::spec::*;

const LOCAL_LENGTH: u8 = 0x01;
const LOCAL_QP_OPERATION: u8 = 0x02;
const FLUSHED: u8 = 0x05;
const RTS: u8 = 3;
const SQE: u8 = 5;
const ERR: u8 = 6;
const QKEY: u32 = 0x1111_1111;
const GRH: usize = 40;

fn datagram_end(host: Host) -> End {
    end(host, |spec| spec.service = Service::Ud)
}

fn with_qkey() -> QpAttr {
    QpAttr {
        qkey: QKEY,
        ..attributes()
    }
}

fn world() -> World {
    let (a, b) = (datagram_end(Host::new(1)), datagram_end(Host::new(2)));
    World::of(a, b, with_qkey())
}

/// An address vector as libmlx5 writes it.
#[derive(Clone)]
struct Address {
    qkey: u32,
    qpn: Qpn,
    lid: u16,
    mac: [u8; 6],
    /// Of the gid's first word: GRH bit, source GID index, flow label.
    global: u32,
}

impl Address {
    fn of(qpn: Qpn) -> Self {
        Self {
            qkey: QKEY,
            qpn,
            lid: 1,
            mac: [0; 6],
            global: 0,
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.qkey.to_be_bytes().to_vec();
        bytes.extend([0; 4]);
        bytes.extend((1 << 31 | self.qpn.0).to_be_bytes());
        bytes.extend([0x35, 0]);
        bytes.extend(self.lid.to_be_bytes());
        bytes.extend([0; 4]);
        bytes.extend(self.mac);
        bytes.extend([0x20, 63]);
        bytes.extend(self.global.to_be_bytes());
        bytes.extend([0x99; 16]);
        bytes
    }
}

fn send(world: &mut World, address: &Address, data: &[u8]) -> u16 {
    let segments = [address.bytes(), inline(data)];
    world.a.post(SEND, SIGNALLED, &segments)
}

fn post_receive(world: &mut World, length: u32) {
    let receive = world.b.segment(0, length);
    world.b.qp.post_receive(&[receive]);
}

/// {LID, flags, QP} of who sent it.
fn source(cqe: &Completion) -> (u16, u8, u32) {
    let lid = u16::from_be_bytes([cqe.raw[22], cqe.raw[23]]);
    let flags_qpn = u32::from_be_bytes(cqe.raw[24..28].try_into().unwrap());
    (lid, (flags_qpn >> 24) as u8, flags_qpn & 0xff_ffff)
}

#[test]
fn a_datagram_lies_behind_room_for_a_header_that_is_left_alone() {
    let mut world = world();
    world.b.memory.put(0, &[0xee; 100]);
    post_receive(&mut world, 100);
    let address = Address::of(world.b.qp.qpn);
    let segments = [address.bytes(), inline(b"datagram")];
    world.a.post(SEND_IMM, SIGNALLED | SOLICITED, &segments);
    world.run();
    let cqe = world.b.cq.poll().unwrap();
    assert_eq!((cqe.opcode, cqe.bytes, cqe.solicited), (3, 48, true));
    assert_eq!(cqe.immediate, [0xca, 0xfe, 0xba, 0xbe]);
    // Service level 5 of the address vector, no header, LID 1.
    assert_eq!(source(&cqe), (1, 0x05, world.a.qp.qpn.0));
    assert_eq!(world.b.memory.get(0, GRH), [0xee; GRH]);
    assert_eq!(world.b.memory.get(GRH, 9), b"datagram\xee");
    assert_eq!(outcome(&world.a.cq.all()), [(OK, 0)]);
    world.assert_no_violations();
}

#[test]
fn a_global_address_brings_its_header() {
    let mut world = world();
    post_receive(&mut world, 100);
    let address = Address {
        global: 1 << 30 | 0x1_2345,
        ..Address::of(world.b.qp.qpn)
    };
    send(&mut world, &address, b"datagram");
    world.run();
    let cqe = world.b.cq.poll().unwrap();
    assert_eq!((cqe.bytes, source(&cqe)), (48, (1, 0x15, world.a.qp.qpn.0)));
    let header = world.b.memory.get(0, GRH);
    assert_eq!(header[..8], [0x62, 0x01, 0x23, 0x45, 0, 32, 0x1b, 63]);
    assert_eq!(
        (&header[8..24], &header[24..]),
        (&[0; 16][..], &[0x99; 16][..])
    );
    assert_eq!(world.b.memory.get(GRH, 8), b"datagram");
}

#[test]
fn a_packet_that_is_no_whole_datagram_is_dropped() {
    use crate::fabric::packet::{Operation, Packet, PacketFlags};
    let mut world = world();
    let address = Address {
        global: 1 << 30,
        ..Address::of(world.b.qp.qpn)
    };
    send(&mut world, &address, b"datagram");
    world.run();
    let sound = world.wire.sent[0].clone();
    assert_eq!(sound.payload.len(), GRH + 8);
    for _ in 0..4 {
        post_receive(&mut world, 100);
    }
    let wrongs: [fn(&mut Packet); 4] = [
        |packet| packet.payload.truncate(GRH - 1),
        |packet| packet.header.flags.remove(PacketFlags::LAST),
        |packet| packet.header.operation = Operation::Write,
        |packet| packet.header.destination.port = 2,
    ];
    for wrong in wrongs {
        let mut packet = sound.clone();
        wrong(&mut packet);
        world.b.host.nic.receive(packet, &mut world.wire);
    }
    assert_eq!(world.b.cq.all(), []);
    world.b.host.nic.receive(sound, &mut world.wire);
    assert_eq!(outcome(&world.b.cq.all()), [(OK, 0)]);
}

#[test]
fn on_ethernet_there_always_is_a_header_and_the_address_must_be_right() {
    let host = |slot| {
        Host::with(NicOptions {
            slot,
            resolve: Box::new(|_, path| {
                let is_here = path.dmac == Some([2, 0, 0, 0, 0, 7]) && path.dgid == [0x99; 16];
                is_here.then_some(PortAddress { device: 0, port: 1 })
            }),
            identify: Box::new(|_| PortIdentity {
                lid: 0,
                gids: [Some([0x77; 16]), None],
                ethernet: true,
            }),
            ..NicOptions::default()
        })
    };
    let (a, b) = (datagram_end(host(1)), datagram_end(host(2)));
    let mut world = World::of(a, b, with_qkey());
    post_receive(&mut world, 100);
    let wrong = Address {
        mac: [2, 0, 0, 0, 0, 8],
        ..Address::of(world.b.qp.qpn)
    };
    let right = Address {
        mac: [2, 0, 0, 0, 0, 7],
        ..wrong.clone()
    };
    send(&mut world, &wrong, b"astray");
    send(&mut world, &right, b"there");
    world.run();
    assert_eq!(outcome(&world.a.cq.all()), [(OK, 0), (OK, 2)]);
    let cqe = world.b.cq.poll().unwrap();
    // No LID; in place of the service level stands IPv6.
    assert_eq!((cqe.bytes, source(&cqe)), (45, (0, 0x11, world.a.qp.qpn.0)));
    let header = world.b.memory.get(0, GRH);
    assert_eq!(
        (header[0] >> 4, header[6], &header[8..24]),
        (6, 17, &[0x77; 16][..])
    );
    assert!(world.b.cq.poll().is_none());
}

#[test]
fn only_who_knows_the_queue_key_gets_in() {
    let mut world = world();
    for _ in 0..2 {
        post_receive(&mut world, 100);
    }
    let right = Address::of(world.b.qp.qpn);
    let wrong = Address {
        qkey: QKEY ^ 1,
        ..right.clone()
    };
    // The upper bit asks for the sender's own, which is right.
    let own = Address {
        qkey: 1 << 31,
        ..right.clone()
    };
    for address in [&wrong, &right, &own] {
        send(&mut world, address, b"x");
    }
    world.run();
    assert_eq!(world.a.cq.all().len(), 3, "the sender is not told");
    assert_eq!(outcome(&world.b.cq.all()), [(OK, 0), (OK, 1)]);
}

#[test]
fn datagrams_to_nobody_vanish() {
    let mut world = world();
    let good = Address::of(world.b.qp.qpn);
    let nobody = Address::of(Qpn(world.b.qp.qpn.0 + 9));
    let nowhere = Address {
        lid: 0,
        ..good.clone()
    };
    for address in [&good, &nobody, &nowhere] {
        send(&mut world, address, b"too early, or astray");
    }
    world.run();
    post_receive(&mut world, 100);
    send(&mut world, &good, b"there");
    world.run();
    assert_eq!(world.a.cq.all().len(), 4);
    assert_eq!(world.b.memory.get(GRH, 6), b"there\0");
    assert_eq!(outcome(&world.b.cq.all()), [(OK, 0)]);
    assert_eq!(world.b.host.events.take(), []);
    assert_eq!((world.a.state(), world.b.state()), (RTS, RTS));
}

#[test]
fn one_qp_sends_to_many_and_to_itself() {
    let mut world = world();
    let spec = world.b.qp.spec;
    let mut other = world.b.host.qp(spec);
    bring_up(&mut world.b.host.nic, other.qpn, Qpn(0), with_qkey());
    post_receive(&mut world, 100);
    other.post_receive(&[world.b.segment(200, 100)]);
    let receive = world.a.segment(400, 100);
    world.a.qp.post_receive(&[receive]);
    let (b, a) = (world.b.qp.qpn, world.a.qp.qpn);
    for (to, data) in [(b, b"to b"), (other.qpn, b"to c"), (a, b"to a")] {
        send(&mut world, &Address::of(to), data);
    }
    world.run();
    assert_eq!(world.b.memory.get(GRH, 4), b"to b");
    assert_eq!(world.b.memory.get(200 + GRH, 4), b"to c");
    assert_eq!(world.a.memory.get(400 + GRH, 4), b"to a");
    assert_eq!(world.b.cq.all().len(), 2);
    let own = world.a.cq.all();
    assert_eq!(own.iter().filter(|cqe| cqe.opcode == 2).count(), 1);
}

#[test]
fn a_datagram_has_at_most_one_packet() {
    let mut world = world();
    post_receive(&mut world, 5000);
    let sent = world.a.fill(0, 4096, 3);
    let address = Address::of(world.b.qp.qpn).bytes();
    let whole = world.a.segment(0, 4096);
    let longer = world.a.segment(0, 4097);
    world.a.post(SEND, SIGNALLED, &[address.clone(), whole]);
    world.a.post(SEND, 0, &[address.clone(), longer]);
    world.a.post(SEND, 0, &[address, inline(b"x")]);
    world.run();
    let expected = [(OK, 0), (LOCAL_LENGTH, 2), (FLUSHED, 4)];
    assert_eq!(outcome(&world.a.cq.all()), expected);
    assert_eq!(world.a.state(), SQE);
    assert_eq!(world.b.memory.get(GRH, 4096), sent);
}

#[test]
fn a_receive_without_room_for_the_header_is_too_short() {
    let mut world = world();
    post_receive(&mut world, 47);
    post_receive(&mut world, 48);
    let address = Address::of(world.b.qp.qpn);
    send(&mut world, &address, b"datagram");
    world.run();
    assert_eq!(outcome(&world.a.cq.all()), [(OK, 0)]);
    assert_eq!(
        outcome(&world.b.cq.all()),
        [(LOCAL_LENGTH, 0), (FLUSHED, 1)]
    );
    assert_eq!(world.b.state(), ERR);
}

#[test]
fn what_is_no_datagram_is_an_operation_error() {
    type Wrong = fn(&World) -> Vec<Vec<u8>>;
    let wrongs: [(u8, Wrong); 5] = [
        (WRITE, |world| vec![world.b.remote(0)]),
        (READ, |world| vec![world.b.remote(0)]),
        (SEND, |_| vec![]),
        (SEND, |world| {
            vec![Address::of(world.b.qp.qpn).bytes()[..32].to_vec()]
        }),
        // A source GID that is not in the table.
        (SEND, |world| {
            let global = 1 << 30 | 1 << 20;
            let address = Address::of(world.b.qp.qpn);
            vec![Address { global, ..address }.bytes()]
        }),
    ];
    for (opcode, segments) in wrongs {
        let mut world = world();
        let segments = segments(&world);
        world.a.post(opcode, 0, &segments);
        world.run();
        assert_eq!(outcome(&world.a.cq.all()), [(LOCAL_QP_OPERATION, 0)]);
        assert_eq!((world.a.state(), world.wire.sent.len()), (SQE, 0));
    }
}

#[test]
fn address_vectors_and_data_go_around_the_ring_end() {
    let a = end(Host::new(1), |spec| {
        spec.service = Service::Ud;
        spec.sq_wqebb_count = 8;
    });
    let mut world = World::of(a, datagram_end(Host::new(2)), with_qkey());
    let data: Vec<u8> = (0..150).collect();
    let address = Address::of(world.b.qp.qpn);
    for lap in 0..20 {
        post_receive(&mut world, 300);
        // Four blocks, then three: every offset at the end occurs.
        let length = if lap % 2 == 0 { 150 } else { 100 };
        send(&mut world, &address, &data[..length]);
        world.run();
        assert_eq!(world.b.memory.get(GRH, length), data[..length], "{lap}");
        assert_eq!((world.a.cq.all().len(), world.b.cq.all().len()), (1, 1));
    }
    world.assert_no_violations();
}

#[test]
fn datagrams_are_received_from_a_shared_queue() {
    let mut host = Host::new(2);
    let mut srq = TestSrq::new(&mut host, 16, 0);
    let b = end(host, |spec| {
        spec.service = Service::Ud;
        spec.srq = Some(srq.srqn);
        spec.rq_wqe_count = 0;
    });
    let mut world = World::of(datagram_end(Host::new(1)), b, with_qkey());
    let segment = world.b.segment(0, 100);
    srq.post(0, 5, &segment);
    srq.post(5, 6, &segment);
    let address = Address::of(world.b.qp.qpn);
    for _ in 0..2 {
        send(&mut world, &address, b"x");
    }
    world.run();
    let received = world.b.cq.all();
    assert_eq!(outcome(&received), [(OK, 0), (OK, 5)]);
    assert!(received.iter().all(|cqe| cqe.resource == 0x77));
}
