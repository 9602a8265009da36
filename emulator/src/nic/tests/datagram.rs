//! Unreliable datagrams: address vectors, Q_Keys, the GRH.

use super::fixtures::*;
use super::receive::TestSrq;
use super::roce::table_of;
use crate::nic::NicOptions;
use crate::spec::gid::{Gid, GidType};
use crate::spec::*;

const LOCAL_LENGTH: u8 = 0x01;
const LOCAL_QP_OPERATION: u8 = 0x02;
const FLUSHED: u8 = 0x05;
const RTS: u8 = 3;
const SQE: u8 = 5;
const ERR: u8 = 6;
const QKEY: u32 = 0x1111_1111;
const GRH: usize = 40;

fn datagram_end(host: Host) -> Peer {
    peer(host, |spec| spec.service = Service::Ud)
}

fn with_qkey() -> QpAttr {
    QpAttr {
        qkey: QKEY,
        ..attributes()
    }
}

fn pair() -> Pair {
    let (a, b) = (datagram_end(Host::new(1)), datagram_end(Host::new(2)));
    Pair::connect(a, b, with_qkey())
}

/// An address vector (`mlx5_wqe_av`) as libmlx5 writes it.
#[derive(Clone)]
struct AddressVector {
    qkey: u32,
    qpn: Qpn,
    lid: u16,
    mac: [u8; 6],
    /// The word before the GID: GRH bit, source GID index, flow label.
    global: u32,
}

impl AddressVector {
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

fn send(pair: &mut Pair, address: &AddressVector, data: &[u8]) -> u16 {
    let segments = [address.bytes(), inline_segment(data)];
    pair.a.post(SEND, SIGNALLED, &segments)
}

fn post_receive(pair: &mut Pair, length: u32) {
    let receive = pair.b.data_segment(0, length);
    pair.b.qp.post_receive(&[receive]);
}

/// Returns the LID, the flags and the QP number of the sender.
fn sender_of(cqe: &Completion) -> (u16, u8, u32) {
    let lid = u16::from_be_bytes([cqe.raw[22], cqe.raw[23]]);
    let flags_qpn = u32::from_be_bytes(cqe.raw[24..28].try_into().unwrap());
    (lid, (flags_qpn >> 24) as u8, flags_qpn & 0xff_ffff)
}

#[test]
fn a_datagram_is_placed_behind_40_bytes_that_are_not_written() {
    let mut pair = pair();
    pair.b.memory.put(0, &[0xee; 100]);
    post_receive(&mut pair, 100);
    let address = AddressVector::of(pair.b.qp.qpn);
    let segments = [address.bytes(), inline_segment(b"datagram")];
    pair.a.post(SEND_IMM, SIGNALLED | SOLICITED, &segments);
    pair.run_until_idle();
    let cqe = pair.b.cq.poll().unwrap();
    assert_eq!((cqe.opcode, cqe.bytes, cqe.solicited), (3, 48, true));
    assert_eq!(cqe.immediate, [0xca, 0xfe, 0xba, 0xbe]);
    // Service level 5 of the address vector, no GRH, LID 1.
    assert_eq!(sender_of(&cqe), (1, 0x05, pair.a.qp.qpn.0));
    assert_eq!(pair.b.memory.get(0, GRH), [0xee; GRH]);
    assert_eq!(pair.b.memory.get(GRH, 9), b"datagram\xee");
    assert_eq!(statuses(&pair.a.cq.poll_all()), [(OK, 0)]);
    pair.assert_no_violations();
}

#[test]
fn a_datagram_to_a_global_address_has_a_grh() {
    let mut pair = pair();
    post_receive(&mut pair, 100);
    let address = AddressVector {
        global: 1 << 30 | 0x1_2345,
        ..AddressVector::of(pair.b.qp.qpn)
    };
    send(&mut pair, &address, b"datagram");
    pair.run_until_idle();
    let cqe = pair.b.cq.poll().unwrap();
    assert_eq!(
        (cqe.bytes, sender_of(&cqe)),
        (48, (1, 0x15, pair.a.qp.qpn.0))
    );
    let header = pair.b.memory.get(0, GRH);
    assert_eq!(header[..8], [0x62, 0x01, 0x23, 0x45, 0, 32, 0x1b, 63]);
    assert_eq!(
        (&header[8..24], &header[24..]),
        (&[0; 16][..], &[0x99; 16][..])
    );
    assert_eq!(pair.b.memory.get(GRH, 8), b"datagram");
    // The length includes immediate data.
    post_receive(&mut pair, 100);
    let segments = [address.bytes(), inline_segment(b"datagram")];
    pair.a.post(SEND_IMM, SIGNALLED, &segments);
    pair.run_until_idle();
    assert_eq!(pair.b.memory.get(4, 2), [0, 36]);
}

#[test]
fn a_packet_that_is_not_a_complete_datagram_is_dropped() {
    use crate::fabric::packet::{Operation, Packet, PacketFlags};
    let mut pair = pair();
    let address = AddressVector {
        global: 1 << 30,
        ..AddressVector::of(pair.b.qp.qpn)
    };
    send(&mut pair, &address, b"datagram");
    pair.run_until_idle();
    let sound = pair.wire.sent[0].clone();
    assert_eq!(sound.payload.len(), GRH + 8);
    for _ in 0..4 {
        post_receive(&mut pair, 100);
    }
    let invalid: [fn(&mut Packet); 5] = [
        |packet| packet.payload.truncate(GRH - 1),
        |packet| packet.header.flags.remove(PacketFlags::LAST),
        |packet| packet.header.operation = Operation::Write,
        |packet| packet.header.destination.port = 2,
        |packet| packet.header.service = Service::Uc,
    ];
    for wrong in invalid {
        let mut packet = sound.clone();
        wrong(&mut packet);
        pair.b.host.nic.receive(packet);
    }
    assert_eq!(pair.b.cq.poll_all(), []);
    pair.b.host.nic.receive(sound);
    assert_eq!(statuses(&pair.b.cq.poll_all()), [(OK, 0)]);
}

#[test]
fn on_roce_every_datagram_has_a_grh_and_a_wrong_mac_is_dropped() {
    let gid = |kind| {
        let raw = [0x77; 16];
        Some(Gid { raw, kind })
    };
    let host = |slot| {
        Host::with_options(NicOptions {
            slot,
            resolve: Box::new(|_, path| {
                let is_here = path.dmac == Some([2, 0, 0, 0, 0, 7]) && path.dgid == [0x99; 16];
                is_here.then_some(PortAddress { device: 0, port: 1 })
            }),
            identify: Box::new(move |_| PortIdentity {
                lid: 0,
                gids: table_of([gid(GidType::RoceV2), gid(GidType::RoceV1)]),
                ethernet: true,
                mtu: 5,
            }),
            ..NicOptions::default()
        })
    };
    let (a, b) = (datagram_end(host(1)), datagram_end(host(2)));
    let mut pair = Pair::connect(a, b, with_qkey());
    post_receive(&mut pair, 100);
    let wrong = AddressVector {
        mac: [2, 0, 0, 0, 0, 8],
        ..AddressVector::of(pair.b.qp.qpn)
    };
    let right = AddressVector {
        mac: [2, 0, 0, 0, 0, 7],
        ..wrong.clone()
    };
    send(&mut pair, &wrong, b"wrong address");
    send(&mut pair, &right, b"there");
    pair.run_until_idle();
    assert_eq!(statuses(&pair.a.cq.poll_all()), [(OK, 0), (OK, 2)]);
    let cqe = pair.b.cq.poll().unwrap();
    // No LID; the service level field contains the IPv6 flag.
    assert_eq!(
        (cqe.bytes, sender_of(&cqe)),
        (45, (0, 0x11, pair.a.qp.qpn.0))
    );
    let header = pair.b.memory.get(0, GRH);
    assert_eq!(
        (header[0] >> 4, header[6], &header[8..24]),
        (6, 17, &[0x77; 16][..])
    );
    // A datagram of RoCE v1 arrives at the same QP, with InfiniBand's header.
    post_receive(&mut pair, 100);
    let v1 = AddressVector {
        global: 1 << 20,
        ..right
    };
    send(&mut pair, &v1, b"there");
    pair.run_until_idle();
    let cqe = pair.b.cq.poll().unwrap();
    assert_eq!(sender_of(&cqe), (0, 0x10, pair.a.qp.qpn.0));
    assert!(pair.b.cq.poll().is_none());
}

#[test]
fn a_datagram_with_a_wrong_q_key_is_dropped() {
    let mut pair = pair();
    for _ in 0..2 {
        post_receive(&mut pair, 100);
    }
    let right = AddressVector::of(pair.b.qp.qpn);
    let wrong = AddressVector {
        qkey: QKEY ^ 1,
        ..right.clone()
    };
    // The upper bit selects the sender's own Q_Key, which matches.
    let own = AddressVector {
        qkey: 1 << 31,
        ..right.clone()
    };
    for address in [&wrong, &right, &own] {
        send(&mut pair, address, b"x");
    }
    pair.run_until_idle();
    assert_eq!(
        pair.a.cq.poll_all().len(),
        3,
        "the sender's requests succeed"
    );
    assert_eq!(statuses(&pair.b.cq.poll_all()), [(OK, 0), (OK, 1)]);
}

#[test]
fn a_trace_says_why_a_datagram_is_dropped() {
    let mut pair = pair();
    let notes = Notes::of(&mut pair.b.host);
    let valid = AddressVector::of(pair.b.qp.qpn);
    let wrong = AddressVector {
        qkey: 0x222,
        ..valid.clone()
    };
    let packet = format!(
        "QP {:#x}: packet from QP {:#x} dropped",
        pair.b.qp.qpn.0, pair.a.qp.qpn.0
    );
    for (address, reason) in [
        (&wrong, "its Q_Key is 0x222, the queue pair has 0x11111111"),
        (&valid, "no receive is posted"),
    ] {
        send(&mut pair, address, b"x");
        pair.run_until_idle();
        assert_eq!(notes.take(), [format!("{packet}: {reason}")]);
    }
    post_receive(&mut pair, 100);
    send(&mut pair, &valid, b"x");
    pair.run_until_idle();
    assert_eq!(notes.take(), [""; 0]);
}

#[test]
fn datagrams_without_a_receiver_are_dropped() {
    let mut pair = pair();
    let valid = AddressVector::of(pair.b.qp.qpn);
    let no_qp = AddressVector::of(Qpn(pair.b.qp.qpn.0 + 9));
    let no_lid = AddressVector {
        lid: 0,
        ..valid.clone()
    };
    for address in [&valid, &no_qp, &no_lid] {
        send(&mut pair, address, b"too early, or to no QP");
    }
    pair.run_until_idle();
    post_receive(&mut pair, 100);
    send(&mut pair, &valid, b"there");
    pair.run_until_idle();
    assert_eq!(pair.a.cq.poll_all().len(), 4);
    assert_eq!(pair.b.memory.get(GRH, 6), b"there\0");
    assert_eq!(statuses(&pair.b.cq.poll_all()), [(OK, 0)]);
    assert_eq!(pair.b.host.events.take(), []);
    assert_eq!((pair.a.state(), pair.b.state()), (RTS, RTS));
}

#[test]
fn one_qp_sends_to_many_and_to_itself() {
    let mut pair = pair();
    let spec = pair.b.qp.spec;
    let mut other = pair.b.host.create_qp(spec);
    modify_to_rts(&mut pair.b.host.nic, other.qpn, Qpn(0), with_qkey());
    post_receive(&mut pair, 100);
    other.post_receive(&[pair.b.data_segment(200, 100)]);
    let receive = pair.a.data_segment(400, 100);
    pair.a.qp.post_receive(&[receive]);
    let (b, a) = (pair.b.qp.qpn, pair.a.qp.qpn);
    for (to, data) in [(b, b"to b"), (other.qpn, b"to c"), (a, b"to a")] {
        send(&mut pair, &AddressVector::of(to), data);
    }
    pair.run_until_idle();
    assert_eq!(pair.b.memory.get(GRH, 4), b"to b");
    assert_eq!(pair.b.memory.get(200 + GRH, 4), b"to c");
    assert_eq!(pair.a.memory.get(400 + GRH, 4), b"to a");
    assert_eq!(pair.b.cq.poll_all().len(), 2);
    let own = pair.a.cq.poll_all();
    assert_eq!(own.iter().filter(|cqe| cqe.opcode == 2).count(), 1);
}

#[test]
fn a_datagram_longer_than_the_mtu_is_a_length_error() {
    let mut pair = pair();
    post_receive(&mut pair, 5000);
    let sent = pair.a.fill(0, 4096, 3);
    let address = AddressVector::of(pair.b.qp.qpn).bytes();
    let whole = pair.a.data_segment(0, 4096);
    let longer = pair.a.data_segment(0, 4097);
    pair.a.post(SEND, SIGNALLED, &[address.clone(), whole]);
    pair.a.post(SEND, 0, &[address.clone(), longer]);
    pair.a.post(SEND, 0, &[address, inline_segment(b"x")]);
    pair.run_until_idle();
    let expected = [(OK, 0), (LOCAL_LENGTH, 2), (FLUSHED, 4)];
    assert_eq!(statuses(&pair.a.cq.poll_all()), expected);
    assert_eq!(pair.a.state(), SQE);
    assert_eq!(pair.b.memory.get(GRH, 4096), sent);
}

#[test]
fn a_receive_too_short_for_the_grh_is_a_length_error() {
    let mut pair = pair();
    post_receive(&mut pair, 47);
    post_receive(&mut pair, 48);
    let address = AddressVector::of(pair.b.qp.qpn);
    send(&mut pair, &address, b"datagram");
    pair.run_until_idle();
    assert_eq!(statuses(&pair.a.cq.poll_all()), [(OK, 0)]);
    assert_eq!(
        statuses(&pair.b.cq.poll_all()),
        [(LOCAL_LENGTH, 0), (FLUSHED, 1)]
    );
    assert_eq!(pair.b.state(), ERR);
}

#[test]
fn wqes_that_are_not_datagrams_are_operation_errors() {
    type InvalidWqe = fn(&Pair) -> Vec<Vec<u8>>;
    let invalid: [(u8, InvalidWqe); 5] = [
        (WRITE, |pair| vec![pair.b.raddr_segment(0)]),
        (READ, |pair| vec![pair.b.raddr_segment(0)]),
        (SEND, |_| vec![]),
        (SEND, |pair| {
            vec![AddressVector::of(pair.b.qp.qpn).bytes()[..32].to_vec()]
        }),
        // A source GID index outside the table.
        (SEND, |pair| {
            let global = 1 << 30 | 1 << 20;
            let address = AddressVector::of(pair.b.qp.qpn);
            vec![AddressVector { global, ..address }.bytes()]
        }),
    ];
    for (opcode, segments) in invalid {
        let mut pair = pair();
        let segments = segments(&pair);
        pair.a.post(opcode, 0, &segments);
        pair.run_until_idle();
        assert_eq!(statuses(&pair.a.cq.poll_all()), [(LOCAL_QP_OPERATION, 0)]);
        assert_eq!((pair.a.state(), pair.wire.sent.len()), (SQE, 0));
    }
}

#[test]
fn address_vectors_and_data_wrap_around_the_end_of_the_ring() {
    let a = peer(Host::new(1), |spec| {
        spec.service = Service::Ud;
        spec.sq_wqebb_count = 8;
    });
    let mut pair = Pair::connect(a, datagram_end(Host::new(2)), with_qkey());
    let data: Vec<u8> = (0..150).collect();
    let address = AddressVector::of(pair.b.qp.qpn);
    for lap in 0..20 {
        post_receive(&mut pair, 300);
        // Four WQEBBs, then three: every offset at the end of the ring occurs.
        let length = if lap % 2 == 0 { 150 } else { 100 };
        send(&mut pair, &address, &data[..length]);
        pair.run_until_idle();
        assert_eq!(pair.b.memory.get(GRH, length), data[..length], "{lap}");
        assert_eq!(
            (pair.a.cq.poll_all().len(), pair.b.cq.poll_all().len()),
            (1, 1)
        );
    }
    pair.assert_no_violations();
}

#[test]
fn datagrams_are_received_from_an_srq() {
    let mut host = Host::new(2);
    let mut srq = TestSrq::new(&mut host, 16, 0);
    let b = peer(host, |spec| {
        spec.service = Service::Ud;
        spec.srq = Some(srq.srqn);
        spec.rq_wqe_count = 0;
    });
    let mut pair = Pair::connect(datagram_end(Host::new(1)), b, with_qkey());
    let segment = pair.b.data_segment(0, 100);
    srq.post(0, 5, &segment);
    srq.post(5, 6, &segment);
    let address = AddressVector::of(pair.b.qp.qpn);
    for _ in 0..2 {
        send(&mut pair, &address, b"x");
    }
    pair.run_until_idle();
    let received = pair.b.cq.poll_all();
    assert_eq!(statuses(&received), [(OK, 0), (OK, 5)]);
    assert!(received.iter().all(|cqe| cqe.resource == 0x77));
}
