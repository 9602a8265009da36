//! The unreliable connection: whole messages or none, and nothing answered.

use super::receive::TestSrq;
use super::rig::*;
use super::wire::Fate;
use crate::fabric::packet::{Operation, PacketFlags};
use crate::nic::spec::*;
use proptest::prelude::*;

const LOCAL_LENGTH: u8 = 0x01;
const LOCAL_QP_OPERATION: u8 = 0x02;
const LOCAL_PROTECTION: u8 = 0x04;
const FLUSHED: u8 = 0x05;
const RTS: u8 = 3;
const SQE: u8 = 5;
const ERR: u8 = 6;

fn unreliable(slot: u8) -> End {
    end(Host::new(slot), |spec| spec.service = Service::Uc)
}

fn world() -> World {
    World::of(unreliable(1), unreliable(2), attributes())
}

/// Loses the packets of those PSNs, counted from the first one sent.
fn lose(world: &mut World, lost: &'static [usize]) {
    let mut n = 0;
    world.wire.decide = Box::new(move |_| {
        n += 1;
        if lost.contains(&(n - 1)) {
            Fate::IsLost
        } else {
            Fate::Arrives
        }
    });
}

/// SQE back to RTS.
fn recover(end: &mut End) {
    let attr = QpAttr {
        mask: 1 | 2,
        state: RTS,
        cur_state: SQE,
        ..QpAttr::default()
    };
    end.host.nic.modify_qp(end.qp.qpn, &attr).unwrap();
}

#[test]
fn sends_and_writes_of_many_packets_arrive_and_nothing_is_answered() {
    let mut world = world();
    let sent = world.a.fill(0, 5000, 1);
    let receive = world.b.segment(8000, 6000);
    world.b.qp.post_receive(&[receive]);
    world.b.qp.post_receive(&[]);
    let from = world.a.segment(0, 5000);
    world
        .a
        .post(SEND_IMM, SIGNALLED | SOLICITED, std::slice::from_ref(&from));
    let to = world.b.remote(20_000);
    world.a.post(WRITE, SIGNALLED, &[to, from.clone()]);
    let to = world.b.remote(30_000);
    world.a.post(WRITE_IMM, SIGNALLED, &[to, from]);
    world.a.post(NOP, SIGNALLED, &[]);
    world.run();
    for place in [8000, 20_000, 30_000] {
        assert_eq!(world.b.memory.get(place, 5000), sent, "{place}");
    }
    let received = world.b.cq.all();
    let told: Vec<_> = received
        .iter()
        .map(|cqe| (cqe.opcode, cqe.bytes, cqe.solicited))
        .collect();
    assert_eq!(told, [(3, 5000, true), (1, 5000, false)]);
    assert_eq!(received[0].immediate, [0xca, 0xfe, 0xba, 0xbe]);
    let done = outcome(&world.a.cq.all());
    assert_eq!(done, [(OK, 0), (OK, 1), (OK, 2), (OK, 3)]);
    let is_request = |operation| matches!(operation, Operation::Send | Operation::Write);
    assert!(world.wire.sent.iter().all(|packet| {
        let header = &packet.header;
        is_request(header.operation) && !header.flags.contains(PacketFlags::ACK_REQUEST)
    }));
    world.assert_no_violations();
}

#[test]
fn requests_are_done_when_they_have_left_and_no_timer_runs() {
    let mut world = world();
    world.wire.decide = Box::new(|_| Fate::IsLost);
    let from = world.a.segment(0, 5000);
    world.a.post(SEND, SIGNALLED, &[from]);
    let progress = world.a.host.nic.work(1, &mut world.wire, 64);
    assert_eq!(outcome(&world.a.cq.all()), [(OK, 0)]);
    assert_eq!(progress.next_deadline, None);
    assert_eq!(world.wire.sent.len(), 5);
}

#[test]
fn a_message_that_lost_a_packet_does_not_arrive_and_leaves_its_receive() {
    // Three packets each; the first, a middle and the last one are lost.
    for lost in [&[0], &[1], &[2]] {
        let mut world = world();
        lose(&mut world, lost);
        for n in 0..2 {
            let receive = world.b.segment(n * 4000, 4000);
            world.b.qp.post_receive(&[receive]);
        }
        world.a.fill(0, 3000, 1);
        let second = world.a.fill(4000, 3000, 2);
        for offset in [0, 4000] {
            let from = world.a.segment(offset, 3000);
            world.a.post(SEND, SIGNALLED, &[from]);
        }
        world.run();
        assert_eq!(outcome(&world.a.cq.all()), [(OK, 0), (OK, 1)]);
        assert_eq!(outcome(&world.b.cq.all()), [(OK, 0)], "{lost:?}");
        assert_eq!(world.b.memory.get(0, 3000), second);
        assert_eq!((world.a.state(), world.b.state()), (RTS, RTS));
    }
}

#[test]
fn a_shared_receive_stays_with_the_qp_whose_message_was_cut_off() {
    let mut host = Host::new(2);
    let mut srq = TestSrq::new(&mut host, 16, 0);
    let b = end(host, |spec| {
        spec.service = Service::Uc;
        spec.srq = Some(srq.srqn);
        spec.rq_wqe_count = 0;
    });
    let mut world = World::of(unreliable(1), b, attributes());
    lose(&mut world, &[2]);
    let segment = world.b.segment(0, 4000);
    srq.post(0, 1, &segment);
    for _ in 0..2 {
        let from = world.a.segment(0, 3000);
        world.a.post(SEND, 0, &[from]);
        world.run();
    }
    assert_eq!(outcome(&world.b.cq.all()), [(OK, 0)]);
}

#[test]
fn what_finds_no_receive_is_dropped() {
    let mut world = world();
    world.a.post(SEND, SIGNALLED, &[inline(b"early")]);
    let to = world.b.remote(64);
    world.a.post(WRITE_IMM, SIGNALLED, &[to, inline(b"early")]);
    world.run();
    let receive = world.b.segment(0, 64);
    world.b.qp.post_receive(&[receive]);
    world.a.post(SEND, SIGNALLED, &[inline(b"on time")]);
    world.run();
    assert_eq!(world.b.memory.get(0, 7), b"on time");
    assert_eq!(world.b.cq.all().len(), 1);
    assert_eq!(world.a.cq.all().len(), 3);
    assert_eq!(world.b.memory.get(64, 5), [0; 5]);
    assert_eq!(world.b.host.events.take(), []);
}

#[test]
fn what_the_peer_may_not_do_is_dropped() {
    let mut world = world();
    let bad = remote(world.b.memory.at(), world.b.key ^ 0x10);
    world.a.post(WRITE, SIGNALLED, &[bad, inline(b"bad key")]);
    let beyond = world.b.remote(MEMORY - 1);
    world
        .a
        .post(WRITE, SIGNALLED, &[beyond, inline(b"bad end")]);
    let good = world.b.remote(8);
    world.a.post(WRITE, SIGNALLED, &[good, inline(b"good")]);
    world.run();
    assert_eq!(outcome(&world.a.cq.all()), [(OK, 0), (OK, 1), (OK, 2)]);
    assert_eq!(world.b.memory.get(0, 12), b"\0\0\0\0\0\0\0\0good");
    assert_eq!((world.b.state(), world.b.host.events.take()), (RTS, vec![]));
}

#[test]
fn a_message_longer_than_its_receive_fails_the_receiver_alone() {
    let mut world = world();
    let receive = world.b.segment(0, 2999);
    world.b.qp.post_receive(std::slice::from_ref(&receive));
    world.b.qp.post_receive(&[receive]);
    let from = world.a.segment(0, 3000);
    world.a.post(SEND, SIGNALLED, &[from]);
    world.run();
    assert_eq!(outcome(&world.a.cq.all()), [(OK, 0)]);
    assert_eq!(
        outcome(&world.b.cq.all()),
        [(LOCAL_LENGTH, 0), (FLUSHED, 1)]
    );
    assert_eq!((world.a.state(), world.b.state()), (RTS, ERR));
}

#[test]
fn a_bad_request_stops_the_send_queue_until_software_brings_it_back() {
    let mut world = world();
    for n in 0..2 {
        let receive = world.a.segment(n * 64, 64);
        world.a.qp.post_receive(&[receive]);
    }
    let to = world.b.remote(0);
    let good = [to.clone(), inline(b"good")];
    let bad = [to, pointer(4, 0xbad, 0x10000)];
    world.a.post(WRITE, SIGNALLED, &good);
    world.a.post(WRITE, 0, &bad);
    world.a.post(WRITE, 0, &good);
    world.run();
    let expected = [(OK, 0), (LOCAL_PROTECTION, 1), (FLUSHED, 2)];
    assert_eq!(outcome(&world.a.cq.all()), expected);
    assert_eq!((world.a.state(), world.b.state()), (SQE, RTS));
    // What is posted meanwhile is flushed; receives go on.
    let later = world.a.post(WRITE, 0, &good);
    world.run();
    assert_eq!(outcome(&world.a.cq.all()), [(FLUSHED, later)]);
    world.b.post(SEND, 0, &[inline(b"still here")]);
    world.run();
    assert_eq!(world.a.memory.get(0, 10), b"still here");
    assert_eq!(outcome(&world.a.cq.all()), [(OK, 0)]);
    recover(&mut world.a);
    let again = world.a.post(WRITE, SIGNALLED, &good);
    world.run();
    assert_eq!(outcome(&world.a.cq.all()), [(OK, again)]);
    assert_eq!(world.a.state(), RTS);
}

#[test]
fn reads_and_atomics_do_not_exist_here() {
    for opcode in [READ, 0x11, 0x12] {
        let mut world = world();
        let segments = [world.b.remote(0), vec![0; 16], world.a.segment(0, 8)];
        let segments = if opcode == READ {
            vec![segments[0].clone(), segments[2].clone()]
        } else {
            segments.to_vec()
        };
        world.a.post(opcode, 0, &segments);
        world.run();
        assert_eq!(outcome(&world.a.cq.all()), [(LOCAL_QP_OPERATION, 0)]);
        assert_eq!((world.a.state(), world.wire.sent.len()), (SQE, 0));
    }
}

#[test]
fn the_send_queue_is_drained_when_everything_has_left() {
    let mut world = world();
    world.wire.room = 2;
    let segments = [world.b.remote(0), world.a.segment(0, 5000)];
    world.a.post(WRITE, SIGNALLED, &segments);
    world.a.host.nic.work(1, &mut world.wire, 64);
    let drain = QpAttr {
        mask: 1 | 1 << 2,
        state: 4,
        ..QpAttr::default()
    };
    world.a.host.nic.modify_qp(world.a.qp.qpn, &drain).unwrap();
    assert_eq!(world.a.host.events.take(), []);
    world.run();
    let drained = Event::Asynchronous(AsyncEvent::SqDrained, AsyncObject::Qp(0xa0));
    assert_eq!(world.a.host.events.take(), [drained]);
    assert_eq!(outcome(&world.a.cq.all()), [(OK, 0)]);
}

#[test]
fn small_messages_come_in_the_cqe_here_too() {
    let b = end(Host::new(2), |spec| {
        spec.service = Service::Uc;
        spec.scatter_to_cqe = true;
    });
    let mut world = World::of(unreliable(1), b, attributes());
    let receive = world.b.segment(0, 64);
    world.b.qp.post_receive(&[receive]);
    world.a.post(SEND, 0, &[inline(b"small")]);
    world.run();
    let cqe = world.b.cq.poll().unwrap();
    assert_eq!((cqe.format, &cqe.raw[..5]), (1, &b"small"[..]));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..Default::default() })]

    #[test]
    fn what_arrives_on_a_bad_wire_is_whole_and_in_order(
        lost in prop::collection::vec(prop::bool::weighted(0.2), 0..60),
        sizes in prop::collection::vec(8_u16..1500, 1..16),
    ) {
        let mut world = World::of(unreliable(1), unreliable(2), QpAttr {
            path_mtu: 1,
            ..attributes()
        });
        let mut lost = lost.into_iter();
        world.wire.decide = Box::new(move |_| {
            if lost.next().unwrap_or(false) { Fate::IsLost } else { Fate::Arrives }
        });
        let mut messages = Vec::new();
        for (n, size) in sizes.iter().enumerate() {
            let receive = world.b.segment(n * 2048, 2048);
            world.b.qp.post_receive(&[receive]);
            messages.push(world.a.fill(n * 2048, usize::from(*size), n as u8));
            let from = world.a.segment(n * 2048, u32::from(*size));
            world.a.post(SEND, SIGNALLED, &[from]);
        }
        world.run();
        prop_assert_eq!(world.a.cq.all().len(), sizes.len());
        let mut sent = messages.iter();
        for (n, cqe) in world.b.cq.all().iter().enumerate() {
            prop_assert_eq!((cqe.syndrome, usize::from(cqe.counter)), (OK, n));
            let data = world.b.memory.get(n * 2048, cqe.bytes as usize);
            prop_assert!(sent.any(|message| *message == data), "message {}", n);
        }
        prop_assert_eq!(world.b.state(), RTS);
    }
}
