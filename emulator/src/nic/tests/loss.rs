//! A wire that loses, doubles and reorders; receivers that are late; peers
//! that are gone.

use super::rig::*;
use super::wire::Fate;
use crate::fabric::packet::Operation;
use crate::nic::spec::*;
use proptest::prelude::*;

const RETRY_EXCEEDED: u8 = 0x15;
const RNR_EXCEEDED: u8 = 0x16;
/// The ack timeout of code 14.
const TIMEOUT: u64 = 4096 << 14;
/// The RNR timer of code 12.
const RNR_TIME: u64 = 640_000;

#[test]
fn a_receiver_that_is_late_is_waited_for() {
    let mut world = World::new();
    world.a.post(SEND, SIGNALLED, &[inline(b"early")]);
    world.run();
    let sends = |world: &World| {
        world
            .wire
            .sent
            .iter()
            .filter(|packet| packet.header.operation == Operation::Send)
            .count()
    };
    assert_eq!(sends(&world), 1);
    world.pass(RNR_TIME - 1000, 100_000);
    assert_eq!(sends(&world), 1, "not before the responder's time is over");
    let receive = world.b.segment(0, 64);
    world.b.qp.post_receive(&[receive]);
    world.pass(10_000, 1000);
    assert_eq!(sends(&world), 2);
    assert_eq!(outcome(&world.a.cq.all()), [(OK, 0)]);
    assert_eq!(world.b.memory.get(0, 5), b"early");
}

#[test]
fn rnr_retries_are_counted_and_seven_is_for_ever() {
    for (rnr_retry, tries) in [(0, 1), (2, 3)] {
        let mut world = World::with(QpAttr {
            rnr_retry,
            ..attributes()
        });
        world.a.post(SEND, 0, &[inline(b"x")]);
        world.pass(RNR_TIME * 5, RNR_TIME / 4);
        assert_eq!(outcome(&world.a.cq.all()), [(RNR_EXCEEDED, 0)]);
        let sends = world
            .wire
            .sent
            .iter()
            .filter(|p| p.header.operation == Operation::Send);
        assert_eq!(sends.count(), tries);
    }
    let mut world = World::new();
    world.a.post(SEND, 0, &[inline(b"x")]);
    world.pass(RNR_TIME * 50, RNR_TIME / 2);
    assert_eq!(world.a.cq.all(), []);
}

#[test]
fn a_write_with_immediate_waits_for_its_receive_before_its_last_bytes() {
    let mut world = World::new();
    let sent = world.a.fill(0, 2500, 6);
    let segments = [world.b.remote(0), world.a.segment(0, 2500)];
    world.a.post(WRITE_IMM, SIGNALLED, &segments);
    world.run();
    assert_eq!(world.b.memory.get(0, 2048), sent[..2048]);
    assert_eq!(world.b.memory.get(2048, 452), [0; 452]);
    world.b.qp.post_receive(&[]);
    world.pass(RNR_TIME * 2, RNR_TIME / 2);
    assert_eq!(world.b.memory.get(0, 2500), sent);
    assert_eq!(world.b.cq.poll().unwrap().bytes, 2500);
}

#[test]
fn acknowledges_pass_by_sends_that_wait_for_a_receiver() {
    let mut world = World::new();
    world.a.post(SEND, 0, &[inline(b"stuck")]);
    world.run();
    // A is waiting; it must answer B all the same.
    let receive = world.a.segment(0, 64);
    world.a.qp.post_receive(&[receive]);
    world.b.post(SEND, SIGNALLED, &[inline(b"free")]);
    world
        .b
        .post(READ, SIGNALLED, &[world.a.remote(0), world.b.segment(0, 4)]);
    world.run();
    assert_eq!(outcome(&world.b.cq.all()), [(OK, 0), (OK, 1)]);
}

#[test]
fn a_peer_that_is_gone_exceeds_the_retries_of_any_operation() {
    for opcode in [SEND, WRITE, READ] {
        let mut world = World::with(QpAttr {
            retry_count: 2,
            ..attributes()
        });
        world.wire.decide = Box::new(|_| Fate::IsLost);
        let mut segments = vec![world.a.segment(0, 100)];
        if opcode != SEND {
            segments.insert(0, world.b.remote(0));
        }
        world.a.post(opcode, 0, &segments);
        world.a.post(NOP, 0, &[]);
        world.pass(TIMEOUT * 3 - 100_000, 1_000_000);
        assert_eq!(world.a.cq.all(), []);
        world.pass(5_000_000, 1_000_000);
        assert_eq!(outcome(&world.a.cq.all()), [(RETRY_EXCEEDED, 0), (5, 1)]);
        assert_eq!(world.wire.sent.len(), 3, "once and two retries");
    }
}

#[test]
fn a_peer_whose_nic_gets_no_turn_costs_no_retries() {
    let mut world = World::with(QpAttr {
        retry_count: 1,
        ..attributes()
    });
    world.wire.decide = Box::new(|_| Fate::IsLost);
    world.wire.unheard = true;
    world.a.post(SEND, SIGNALLED, &[inline(b"x")]);
    world.pass(TIMEOUT * 50, TIMEOUT / 2);
    assert_eq!(world.a.cq.all(), []);
    assert_eq!(world.wire.sent.len(), 1, "nothing is sent again in vain");
    // It runs, and still does not answer: that is a failure of the transport.
    world.wire.unheard = false;
    world.pass(TIMEOUT * 3, TIMEOUT / 2);
    assert_eq!(outcome(&world.a.cq.all()), [(RETRY_EXCEEDED, 0)]);
    assert_eq!(world.wire.sent.len(), 2, "once and one retry");
}

#[test]
fn a_qp_that_was_destroyed_or_talks_to_another_is_no_peer() {
    let mut world = World::with(QpAttr {
        retry_count: 0,
        ..attributes()
    });
    world.b.host.nic.destroy_qp(world.b.qp.qpn).unwrap();
    world.a.post(SEND, 0, &[inline(b"x")]);
    world.pass(TIMEOUT * 2, TIMEOUT / 2);
    assert_eq!(outcome(&world.a.cq.all()), [(RETRY_EXCEEDED, 0)]);

    let mut world = World::with(QpAttr {
        retry_count: 0,
        ..attributes()
    });
    world.a.host.nic.destroy_qp(world.a.qp.qpn).unwrap();
    let other = world.a.host.qp(world.a.qp.spec);
    assert_eq!(other.qpn, world.a.qp.qpn, "the number comes back at once");
    world.b.post(SEND, 0, &[inline(b"x")]);
    world.pass(TIMEOUT * 2, TIMEOUT / 2);
    assert_eq!(outcome(&world.b.cq.all()), [(RETRY_EXCEEDED, 0)]);
}

#[test]
fn no_timeout_is_no_retry() {
    let mut world = World::with(QpAttr {
        timeout: 0,
        ..attributes()
    });
    world.wire.decide = Box::new(|_| Fate::IsLost);
    world.a.post(SEND, 0, &[inline(b"x")]);
    world.pass(TIMEOUT * 100, TIMEOUT * 10);
    assert_eq!(world.wire.sent.len(), 1);
    assert_eq!(
        world
            .a
            .host
            .nic
            .work(world.now, &mut world.wire, 8)
            .next_deadline,
        None
    );
}

#[test]
fn a_wrong_path_leads_nowhere() {
    let wrong = Path {
        dlid: 9,
        ..attributes().path
    };
    let mut world = World::with(QpAttr {
        path: wrong,
        retry_count: 1,
        ..attributes()
    });
    world.a.post(WRITE, 0, &[world.b.remote(0), inline(b"x")]);
    world.pass(TIMEOUT * 3, TIMEOUT / 2);
    assert_eq!(outcome(&world.a.cq.all()), [(RETRY_EXCEEDED, 0)]);
    assert_eq!(world.b.memory.get(0, 1), [0]);
}

#[test]
fn a_gap_is_refused_at_once_and_sent_again_without_waiting() {
    let mut world = World::new();
    let mut count = 0;
    world.wire.decide = Box::new(move |_| {
        count += 1;
        if count == 3 {
            Fate::IsLost
        } else {
            Fate::Arrives
        }
    });
    let sent = world.a.fill(0, 8000, 8);
    let segments = [world.b.remote(0), world.a.segment(0, 8000)];
    world.a.post(WRITE, SIGNALLED, &segments);
    world.run();
    assert_eq!(outcome(&world.a.cq.all()), [(OK, 0)], "no timer was needed");
    assert_eq!(world.b.memory.get(0, 8000), sent);
    let refusals = world.wire.sent.iter().filter(|p| p.header.syndrome == 0x60);
    assert_eq!(refusals.count(), 1);
}

#[test]
fn a_lost_read_response_is_asked_for_again_from_where_it_is_missing() {
    let mut world = World::new();
    let mut lost = false;
    world.wire.decide = Box::new(move |packet| {
        let header = &packet.header;
        let third = header.operation == Operation::ReadResponse && header.psn == 0;
        if third && !std::mem::replace(&mut lost, true) {
            Fate::IsLost
        } else {
            Fate::Arrives
        }
    });
    let there = world.b.fill(0, 6000, 2);
    let segments = [world.b.remote(0), world.a.segment(0, 6000)];
    world.a.post(READ, SIGNALLED, &segments);
    world.run();
    assert_eq!(world.a.memory.get(0, 6000), there);
    let requests: Vec<_> = world
        .wire
        .sent
        .iter()
        .filter(|packet| packet.header.operation == Operation::ReadRequest)
        .map(|packet| (packet.header.psn, packet.header.length))
        .collect();
    assert_eq!(requests, [(0xff_fffe, 6000), (0, 6000 - 2048)]);
}

/// Posts a mix of operations and checks that each message has its effect
/// exactly once, in order, whatever the wire does.
fn deliver_everything(fates: Vec<Fate>, sizes: Vec<u16>) {
    let mut world = World::with(QpAttr {
        path_mtu: 1,
        ..attributes()
    });
    // The peer is never gone for good: the wire is faultless in the end.
    let mut fates = fates.into_iter();
    world.wire.decide = Box::new(move |_| fates.next().unwrap_or(Fate::Arrives));
    let mut expected = Vec::new();
    for (n, size) in sizes.iter().enumerate() {
        let size = u32::from(*size);
        let slot = n * 2048;
        let data = world.a.fill(slot, size as usize, n as u8 + 1);
        match n % 3 {
            0 => {
                let receive = world.b.segment(slot, 2048);
                world.b.qp.post_receive(&[receive]);
                let from = world.a.segment(slot, size.max(1));
                let list = if size == 0 { vec![] } else { vec![from] };
                world.a.post(SEND, SIGNALLED, &list);
                expected.push((false, slot, data));
            }
            1 => {
                let list = [world.b.remote(slot), world.a.segment(slot, size.max(1))];
                world
                    .a
                    .post(WRITE, SIGNALLED, &list[..if size == 0 { 1 } else { 2 }]);
                expected.push((false, slot, data));
            }
            _ => {
                let there = world.b.fill(slot, size as usize, n as u8 ^ 0x80);
                let list = [world.b.remote(slot), world.a.segment(slot, size.max(1))];
                world
                    .a
                    .post(READ, SIGNALLED, &list[..if size == 0 { 1 } else { 2 }]);
                expected.push((true, slot, there));
            }
        }
    }
    world.pass(TIMEOUT * 40, TIMEOUT / 2);
    let done = world.a.cq.all();
    assert!(done.iter().all(|cqe| cqe.syndrome == OK), "{done:?}");
    assert_eq!(done.len(), sizes.len());
    assert_eq!(
        world.b.cq.all().len(),
        sizes.len().div_ceil(3),
        "each send is received once"
    );
    for (at_a, slot, data) in expected {
        let memory = if at_a {
            &world.a.memory
        } else {
            &world.b.memory
        };
        assert_eq!(memory.get(slot, data.len()), data);
    }
    world.assert_no_violations();
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        6 => Just(Fate::Arrives),
        1 => Just(Fate::IsLost),
        1 => Just(Fate::ArrivesTwice),
        1 => Just(Fate::IsOvertaken),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..Default::default() })]

    #[test]
    fn every_message_has_its_effect_exactly_once_on_a_bad_wire(
        fates in prop::collection::vec(fate(), 0..60),
        sizes in prop::collection::vec(0_u16..2000, 1..15),
    ) {
        deliver_everything(fates, sizes);
    }
}
