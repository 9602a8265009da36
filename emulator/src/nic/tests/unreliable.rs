//! Unreliable connections: messages arrive complete or not at all, without acks.

use super::fixtures::*;
use super::receive::TestSrq;
use crate::fabric::packet::{Operation, PacketFlags};
use crate::spec::*;
use proptest::prelude::*;

const LOCAL_LENGTH: u8 = 0x01;
const LOCAL_QP_OPERATION: u8 = 0x02;
const LOCAL_PROTECTION: u8 = 0x04;
const FLUSHED: u8 = 0x05;
const RTS: u8 = 3;
const SQE: u8 = 5;
const ERR: u8 = 6;

fn uc_peer(slot: u8) -> Peer {
    peer(Host::new(slot), |spec| spec.service = Service::Uc)
}

fn pair() -> Pair {
    Pair::connect(uc_peer(1), uc_peer(2), attributes())
}

/// Drops the packets with these indices, counted from the first one sent.
fn drop_packets(pair: &mut Pair, lost: &'static [usize]) {
    let mut n = 0;
    pair.wire.delivery_of = Box::new(move |_| {
        n += 1;
        if lost.contains(&(n - 1)) {
            Delivery::Drop
        } else {
            Delivery::Deliver
        }
    });
}

/// Modifies the QP from SQE to RTS.
fn sqe_to_rts(peer: &mut Peer) {
    let attr = QpAttr {
        mask: 1 | 2,
        state: RTS,
        cur_state: SQE,
        ..QpAttr::default()
    };
    peer.host.nic.modify_qp(peer.qp.qpn, &attr).unwrap();
}

#[test]
fn a_packet_of_another_service_is_dropped() {
    let mut pair = pair();
    pair.a.post(SEND, SIGNALLED, &[inline_segment(b"hello")]);
    pair.run_until_idle();
    let sound = pair.wire.sent[0].clone();
    let receive = pair.b.data_segment(0, 100);
    pair.b.qp.post_receive(&[receive]);
    for service in [Service::Rc, Service::Ud] {
        let mut packet = sound.clone();
        packet.header.service = service;
        pair.b.host.nic.receive(packet);
        assert_eq!(pair.b.cq.poll_all(), [], "{service:?}");
    }
    pair.b.host.nic.receive(sound);
    assert_eq!(statuses(&pair.b.cq.poll_all()), [(OK, 0)]);
}

#[test]
fn sends_and_writes_of_many_packets_arrive_without_acks() {
    let mut pair = pair();
    let sent = pair.a.fill(0, 5000, 1);
    let receive = pair.b.data_segment(8000, 6000);
    pair.b.qp.post_receive(&[receive]);
    pair.b.qp.post_receive(&[]);
    let from = pair.a.data_segment(0, 5000);
    pair.a
        .post(SEND_IMM, SIGNALLED | SOLICITED, std::slice::from_ref(&from));
    let to = pair.b.raddr_segment(20_000);
    pair.a.post(WRITE, SIGNALLED, &[to, from.clone()]);
    let to = pair.b.raddr_segment(30_000);
    pair.a.post(WRITE_IMM, SIGNALLED, &[to, from]);
    pair.a.post(NOP, SIGNALLED, &[]);
    pair.run_until_idle();
    for place in [8000, 20_000, 30_000] {
        assert_eq!(pair.b.memory.get(place, 5000), sent, "{place}");
    }
    let received = pair.b.cq.poll_all();
    let reported: Vec<_> = received
        .iter()
        .map(|cqe| (cqe.opcode, cqe.bytes, cqe.solicited))
        .collect();
    assert_eq!(reported, [(3, 5000, true), (1, 5000, false)]);
    assert_eq!(received[0].immediate, [0xca, 0xfe, 0xba, 0xbe]);
    let done = statuses(&pair.a.cq.poll_all());
    assert_eq!(done, [(OK, 0), (OK, 1), (OK, 2), (OK, 3)]);
    let is_request = |operation| matches!(operation, Operation::Send | Operation::Write);
    assert!(pair.wire.sent.iter().all(|packet| {
        let header = &packet.header;
        is_request(header.operation) && !header.flags.contains(PacketFlags::ACK_REQUEST)
    }));
    pair.assert_no_violations();
}

#[test]
fn requests_complete_when_they_are_sent_and_no_timer_runs() {
    let mut pair = pair();
    pair.wire.delivery_of = Box::new(|_| Delivery::Drop);
    let from = pair.a.data_segment(0, 5000);
    pair.a.post(SEND, SIGNALLED, &[from]);
    let progress = pair.a.host.nic.work(1, &mut pair.wire, 64);
    assert_eq!(statuses(&pair.a.cq.poll_all()), [(OK, 0)]);
    assert_eq!(progress.next_deadline, None);
    assert_eq!(pair.wire.sent.len(), 5);
}

#[test]
fn a_message_with_a_lost_packet_does_not_arrive_and_consumes_no_receive() {
    // Three packets each; the first, the middle or the last one is lost.
    for lost in [&[0], &[1], &[2]] {
        let mut pair = pair();
        drop_packets(&mut pair, lost);
        for n in 0..2 {
            let receive = pair.b.data_segment(n * 4000, 4000);
            pair.b.qp.post_receive(&[receive]);
        }
        pair.a.fill(0, 3000, 1);
        let second = pair.a.fill(4000, 3000, 2);
        for offset in [0, 4000] {
            let from = pair.a.data_segment(offset, 3000);
            pair.a.post(SEND, SIGNALLED, &[from]);
        }
        pair.run_until_idle();
        assert_eq!(statuses(&pair.a.cq.poll_all()), [(OK, 0), (OK, 1)]);
        assert_eq!(statuses(&pair.b.cq.poll_all()), [(OK, 0)], "{lost:?}");
        assert_eq!(pair.b.memory.get(0, 3000), second);
        assert_eq!((pair.a.state(), pair.b.state()), (RTS, RTS));
    }
}

#[test]
fn an_srq_wqe_stays_with_the_qp_whose_message_was_incomplete() {
    let mut host = Host::new(2);
    let mut srq = TestSrq::new(&mut host, 16, 0);
    let b = peer(host, |spec| {
        spec.service = Service::Uc;
        spec.srq = Some(srq.srqn);
        spec.rq_wqe_count = 0;
    });
    let mut pair = Pair::connect(uc_peer(1), b, attributes());
    drop_packets(&mut pair, &[2]);
    let segment = pair.b.data_segment(0, 4000);
    srq.post(0, 1, &segment);
    for _ in 0..2 {
        let from = pair.a.data_segment(0, 3000);
        pair.a.post(SEND, 0, &[from]);
        pair.run_until_idle();
    }
    assert_eq!(statuses(&pair.b.cq.poll_all()), [(OK, 0)]);
}

#[test]
fn messages_without_a_receive_are_dropped() {
    let mut pair = pair();
    let notes = Notes::of(&mut pair.b.host);
    pair.a.post(SEND, SIGNALLED, &[inline_segment(b"early")]);
    let to = pair.b.raddr_segment(64);
    pair.a
        .post(WRITE_IMM, SIGNALLED, &[to, inline_segment(b"early")]);
    pair.run_until_idle();
    let dropped = notes.take();
    let has_reason = |it: &String| it.ends_with(" dropped: no receive is posted");
    assert!(
        dropped.len() == 2 && dropped.iter().all(has_reason),
        "{dropped:?}"
    );
    let receive = pair.b.data_segment(0, 64);
    pair.b.qp.post_receive(&[receive]);
    pair.a.post(SEND, SIGNALLED, &[inline_segment(b"on time")]);
    pair.run_until_idle();
    assert_eq!(pair.b.memory.get(0, 7), b"on time");
    assert_eq!(pair.b.cq.poll_all().len(), 1);
    assert_eq!(pair.a.cq.poll_all().len(), 3);
    assert_eq!(pair.b.memory.get(64, 5), [0; 5]);
    assert_eq!(pair.b.host.events.take(), []);
}

#[test]
fn requests_without_permission_are_dropped() {
    let mut pair = pair();
    let bad = raddr_segment(pair.b.memory.at(), pair.b.key ^ 0x10);
    pair.a
        .post(WRITE, SIGNALLED, &[bad, inline_segment(b"bad key")]);
    let beyond = pair.b.raddr_segment(MEMORY_SIZE - 1);
    pair.a
        .post(WRITE, SIGNALLED, &[beyond, inline_segment(b"bad end")]);
    let good = pair.b.raddr_segment(8);
    pair.a
        .post(WRITE, SIGNALLED, &[good, inline_segment(b"good")]);
    pair.run_until_idle();
    assert_eq!(statuses(&pair.a.cq.poll_all()), [(OK, 0), (OK, 1), (OK, 2)]);
    assert_eq!(pair.b.memory.get(0, 12), b"\0\0\0\0\0\0\0\0good");
    assert_eq!((pair.b.state(), pair.b.host.events.take()), (RTS, vec![]));
}

#[test]
fn a_message_longer_than_its_receive_fails_only_the_receiver() {
    let mut pair = pair();
    let receive = pair.b.data_segment(0, 2999);
    pair.b.qp.post_receive(std::slice::from_ref(&receive));
    pair.b.qp.post_receive(&[receive]);
    let from = pair.a.data_segment(0, 3000);
    pair.a.post(SEND, SIGNALLED, &[from]);
    pair.run_until_idle();
    assert_eq!(statuses(&pair.a.cq.poll_all()), [(OK, 0)]);
    assert_eq!(
        statuses(&pair.b.cq.poll_all()),
        [(LOCAL_LENGTH, 0), (FLUSHED, 1)]
    );
    assert_eq!((pair.a.state(), pair.b.state()), (RTS, ERR));
}

#[test]
fn a_malformed_request_moves_the_qp_to_sqe_until_software_modifies_it_to_rts() {
    let mut pair = pair();
    for n in 0..2 {
        let receive = pair.a.data_segment(n * 64, 64);
        pair.a.qp.post_receive(&[receive]);
    }
    let to = pair.b.raddr_segment(0);
    let good = [to.clone(), inline_segment(b"good")];
    let bad = [to, data_segment(4, 0xbad, 0x10000)];
    pair.a.post(WRITE, SIGNALLED, &good);
    pair.a.post(WRITE, 0, &bad);
    pair.a.post(WRITE, 0, &good);
    pair.run_until_idle();
    let expected = [(OK, 0), (LOCAL_PROTECTION, 1), (FLUSHED, 2)];
    assert_eq!(statuses(&pair.a.cq.poll_all()), expected);
    assert_eq!((pair.a.state(), pair.b.state()), (SQE, RTS));
    // Requests posted in SQE are flushed; receives continue.
    let later = pair.a.post(WRITE, 0, &good);
    pair.run_until_idle();
    assert_eq!(statuses(&pair.a.cq.poll_all()), [(FLUSHED, later)]);
    pair.b.post(SEND, 0, &[inline_segment(b"still here")]);
    pair.run_until_idle();
    assert_eq!(pair.a.memory.get(0, 10), b"still here");
    assert_eq!(statuses(&pair.a.cq.poll_all()), [(OK, 0)]);
    sqe_to_rts(&mut pair.a);
    let again = pair.a.post(WRITE, SIGNALLED, &good);
    pair.run_until_idle();
    assert_eq!(statuses(&pair.a.cq.poll_all()), [(OK, again)]);
    assert_eq!(pair.a.state(), RTS);
}

#[test]
fn reads_and_atomics_are_operation_errors() {
    for opcode in [READ, 0x11, 0x12] {
        let mut pair = pair();
        let segments = [
            pair.b.raddr_segment(0),
            vec![0; 16],
            pair.a.data_segment(0, 8),
        ];
        let segments = if opcode == READ {
            vec![segments[0].clone(), segments[2].clone()]
        } else {
            segments.to_vec()
        };
        pair.a.post(opcode, 0, &segments);
        pair.run_until_idle();
        assert_eq!(statuses(&pair.a.cq.poll_all()), [(LOCAL_QP_OPERATION, 0)]);
        assert_eq!((pair.a.state(), pair.wire.sent.len()), (SQE, 0));
    }
}

#[test]
fn the_send_queue_is_drained_when_all_packets_are_sent() {
    let mut pair = pair();
    pair.wire.capacity = 2;
    let segments = [pair.b.raddr_segment(0), pair.a.data_segment(0, 5000)];
    pair.a.post(WRITE, SIGNALLED, &segments);
    pair.a.host.nic.work(1, &mut pair.wire, 64);
    let drain = QpAttr {
        mask: 1 | 1 << 2,
        state: 4,
        ..QpAttr::default()
    };
    pair.a.host.nic.modify_qp(pair.a.qp.qpn, &drain).unwrap();
    assert_eq!(pair.a.host.events.take(), []);
    pair.run_until_idle();
    let drained = Event::Asynchronous(AsyncEvent::SqDrained, AsyncObject::Qp(0xa0));
    assert_eq!(pair.a.host.events.take(), [drained]);
    assert_eq!(statuses(&pair.a.cq.poll_all()), [(OK, 0)]);
}

#[test]
fn small_messages_are_scattered_to_the_cqe() {
    let b = peer(Host::new(2), |spec| {
        spec.service = Service::Uc;
        spec.scatter_to_cqe = true;
    });
    let mut pair = Pair::connect(uc_peer(1), b, attributes());
    let receive = pair.b.data_segment(0, 64);
    pair.b.qp.post_receive(&[receive]);
    pair.a.post(SEND, 0, &[inline_segment(b"small")]);
    pair.run_until_idle();
    let cqe = pair.b.cq.poll().unwrap();
    assert_eq!((cqe.format, &cqe.raw[..5]), (1, &b"small"[..]));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..Default::default() })]

    #[test]
    fn messages_that_arrive_on_a_faulty_wire_are_complete_and_in_order(
        lost in prop::collection::vec(prop::bool::weighted(0.2), 0..60),
        sizes in prop::collection::vec(8_u16..1500, 1..16),
    ) {
        let mut pair = Pair::connect(uc_peer(1), uc_peer(2), QpAttr {
            path_mtu: 1,
            ..attributes()
        });
        let mut lost = lost.into_iter();
        pair.wire.delivery_of = Box::new(move |_| {
            if lost.next().unwrap_or(false) { Delivery::Drop } else { Delivery::Deliver }
        });
        let mut messages = Vec::new();
        for (n, size) in sizes.iter().enumerate() {
            let receive = pair.b.data_segment(n * 2048, 2048);
            pair.b.qp.post_receive(&[receive]);
            messages.push(pair.a.fill(n * 2048, usize::from(*size), n as u8));
            let from = pair.a.data_segment(n * 2048, u32::from(*size));
            pair.a.post(SEND, SIGNALLED, &[from]);
        }
        pair.run_until_idle();
        prop_assert_eq!(pair.a.cq.poll_all().len(), sizes.len());
        let mut sent = messages.iter();
        for (n, cqe) in pair.b.cq.poll_all().iter().enumerate() {
            prop_assert_eq!((cqe.syndrome, usize::from(cqe.counter)), (OK, n));
            let data = pair.b.memory.get(n * 2048, cqe.bytes as usize);
            prop_assert!(sent.any(|message| *message == data), "message {}", n);
        }
        prop_assert_eq!(pair.b.state(), RTS);
    }
}
