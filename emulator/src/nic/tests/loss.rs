//! Lost, duplicated and reordered packets, receivers that are not ready, and peers that
//! do not respond.

use super::fixtures::*;
use crate::fabric::packet::Operation;
use crate::nic::NicOptions;
use crate::spec::*;
use proptest::prelude::*;

const RETRY_EXCEEDED: u8 = 0x15;
const RNR_EXCEEDED: u8 = 0x16;
/// The ack timeout for the encoded value 14.
const TIMEOUT: u64 = 4096 << 14;
/// The RNR timer for the encoded value 12.
const RNR_TIME: u64 = 640_000;

#[test]
fn a_send_without_a_receive_is_retried_after_the_rnr_timer() {
    let mut pair = Pair::new();
    pair.a.post(SEND, SIGNALLED, &[inline_segment(b"early")]);
    pair.run_until_idle();
    let packets_sent = |pair: &Pair| {
        pair.wire
            .sent
            .iter()
            .filter(|packet| packet.header.operation == Operation::Send)
            .count()
    };
    assert_eq!(packets_sent(&pair), 1);
    pair.advance(RNR_TIME - 1000, 100_000);
    assert_eq!(
        packets_sent(&pair),
        1,
        "no retry before the RNR timer expires"
    );
    let receive = pair.b.data_segment(0, 64);
    pair.b.qp.post_receive(&[receive]);
    pair.advance(10_000, 1000);
    assert_eq!(packets_sent(&pair), 2);
    assert_eq!(statuses(&pair.a.cq.poll_all()), [(OK, 0)]);
    assert_eq!(pair.b.memory.get(0, 5), b"early");
}

#[test]
fn rnr_retries_are_limited_and_the_value_7_means_no_limit() {
    for (rnr_retry, tries) in [(0, 1), (2, 3)] {
        let mut pair = Pair::with_attributes(QpAttr {
            rnr_retry,
            ..attributes()
        });
        pair.a.post(SEND, 0, &[inline_segment(b"x")]);
        pair.advance(RNR_TIME * 5, RNR_TIME / 4);
        assert_eq!(statuses(&pair.a.cq.poll_all()), [(RNR_EXCEEDED, 0)]);
        let packets_sent = pair
            .wire
            .sent
            .iter()
            .filter(|p| p.header.operation == Operation::Send);
        assert_eq!(packets_sent.count(), tries);
    }
    let mut pair = Pair::new();
    pair.a.post(SEND, 0, &[inline_segment(b"x")]);
    pair.advance(RNR_TIME * 50, RNR_TIME / 2);
    assert_eq!(pair.a.cq.poll_all(), []);
}

#[test]
fn a_write_with_immediate_without_a_receive_is_retried_at_its_last_packet() {
    let mut pair = Pair::new();
    let sent = pair.a.fill(0, 2500, 6);
    let segments = [pair.b.raddr_segment(0), pair.a.data_segment(0, 2500)];
    pair.a.post(WRITE_IMM, SIGNALLED, &segments);
    pair.run_until_idle();
    assert_eq!(pair.b.memory.get(0, 2048), sent[..2048]);
    assert_eq!(pair.b.memory.get(2048, 452), [0; 452]);
    pair.b.qp.post_receive(&[]);
    pair.advance(RNR_TIME * 2, RNR_TIME / 2);
    assert_eq!(pair.b.memory.get(0, 2500), sent);
    assert_eq!(pair.b.cq.poll().unwrap().bytes, 2500);
}

#[test]
fn a_qp_that_waits_for_an_rnr_timer_still_acknowledges() {
    let mut pair = Pair::new();
    pair.a.post(SEND, 0, &[inline_segment(b"stuck")]);
    pair.run_until_idle();
    // A waits for its RNR timer; it must acknowledge B's send nevertheless.
    let receive = pair.a.data_segment(0, 64);
    pair.a.qp.post_receive(&[receive]);
    pair.b.post(SEND, SIGNALLED, &[inline_segment(b"free")]);
    pair.b.post(
        READ,
        SIGNALLED,
        &[pair.a.raddr_segment(0), pair.b.data_segment(0, 4)],
    );
    pair.run_until_idle();
    assert_eq!(statuses(&pair.b.cq.poll_all()), [(OK, 0), (OK, 1)]);
}

#[test]
fn a_peer_that_does_not_respond_exceeds_the_retries_of_any_operation() {
    for opcode in [SEND, WRITE, READ] {
        let mut pair = Pair::with_attributes(QpAttr {
            retry_count: 2,
            ..attributes()
        });
        pair.wire.delivery_of = Box::new(|_| Delivery::Drop);
        let mut segments = vec![pair.a.data_segment(0, 100)];
        if opcode != SEND {
            segments.insert(0, pair.b.raddr_segment(0));
        }
        pair.a.post(opcode, 0, &segments);
        pair.a.post(NOP, 0, &[]);
        pair.advance(TIMEOUT * 3 - 100_000, 1_000_000);
        assert_eq!(pair.a.cq.poll_all(), []);
        pair.advance(5_000_000, 1_000_000);
        assert_eq!(
            statuses(&pair.a.cq.poll_all()),
            [(RETRY_EXCEEDED, 0), (5, 1)]
        );
        assert_eq!(
            pair.wire.sent.len(),
            3,
            "the first transmission and two retries"
        );
    }
}

#[test]
fn a_peer_whose_nic_does_not_run_costs_no_retries() {
    let mut pair = Pair::with_attributes(QpAttr {
        retry_count: 1,
        ..attributes()
    });
    pair.wire.delivery_of = Box::new(|_| Delivery::Drop);
    pair.wire.peer_busy = true;
    pair.a.post(SEND, SIGNALLED, &[inline_segment(b"x")]);
    pair.advance(TIMEOUT * 50, TIMEOUT / 2);
    assert_eq!(pair.a.cq.poll_all(), []);
    assert_eq!(pair.wire.sent.len(), 1, "no retransmission");
    // The peer's NIC runs and does not respond: a retry is counted.
    pair.wire.peer_busy = false;
    pair.advance(TIMEOUT * 3, TIMEOUT / 2);
    assert_eq!(statuses(&pair.a.cq.poll_all()), [(RETRY_EXCEEDED, 0)]);
    assert_eq!(
        pair.wire.sent.len(),
        2,
        "the first transmission and one retry"
    );
}

#[test]
fn a_destroyed_or_reconnected_qp_does_not_respond() {
    let mut pair = Pair::with_attributes(QpAttr {
        retry_count: 0,
        ..attributes()
    });
    pair.b.host.nic.destroy_qp(pair.b.qp.qpn).unwrap();
    pair.a.post(SEND, 0, &[inline_segment(b"x")]);
    pair.advance(TIMEOUT * 2, TIMEOUT / 2);
    assert_eq!(statuses(&pair.a.cq.poll_all()), [(RETRY_EXCEEDED, 0)]);

    let reusing = |slot| {
        let nasty = "reuse".parse().unwrap();
        let host = Host::with_options(NicOptions {
            slot,
            nasty,
            ..NicOptions::default()
        });
        peer(host, |_| {})
    };
    let mut pair = Pair::connect(
        reusing(1),
        reusing(2),
        QpAttr {
            retry_count: 0,
            ..attributes()
        },
    );
    pair.a.host.nic.destroy_qp(pair.a.qp.qpn).unwrap();
    let other = pair.a.host.create_qp(pair.a.qp.spec);
    assert_eq!(other.qpn, pair.a.qp.qpn, "the QP number is reused at once");
    pair.b.post(SEND, 0, &[inline_segment(b"x")]);
    pair.advance(TIMEOUT * 2, TIMEOUT / 2);
    assert_eq!(statuses(&pair.b.cq.poll_all()), [(RETRY_EXCEEDED, 0)]);
}

#[test]
fn a_timeout_of_0_disables_retries() {
    let mut pair = Pair::with_attributes(QpAttr {
        timeout: 0,
        ..attributes()
    });
    pair.wire.delivery_of = Box::new(|_| Delivery::Drop);
    pair.a.post(SEND, 0, &[inline_segment(b"x")]);
    pair.advance(TIMEOUT * 100, TIMEOUT * 10);
    assert_eq!(pair.wire.sent.len(), 1);
    assert_eq!(
        pair.a
            .host
            .nic
            .work(pair.now, &mut pair.wire, 8)
            .next_deadline,
        None
    );
}

#[test]
fn packets_to_a_wrong_lid_are_lost() {
    let wrong = Path {
        dlid: 9,
        ..attributes().path
    };
    let mut pair = Pair::with_attributes(QpAttr {
        path: wrong,
        retry_count: 1,
        ..attributes()
    });
    pair.a
        .post(WRITE, 0, &[pair.b.raddr_segment(0), inline_segment(b"x")]);
    pair.advance(TIMEOUT * 3, TIMEOUT / 2);
    assert_eq!(statuses(&pair.a.cq.poll_all()), [(RETRY_EXCEEDED, 0)]);
    assert_eq!(pair.b.memory.get(0, 1), [0]);
}

#[test]
fn a_psn_gap_is_naked_and_retransmitted_without_a_timeout() {
    let mut pair = Pair::new();
    let mut count = 0;
    pair.wire.delivery_of = Box::new(move |_| {
        count += 1;
        if count == 3 {
            Delivery::Drop
        } else {
            Delivery::Deliver
        }
    });
    let sent = pair.a.fill(0, 8000, 8);
    let segments = [pair.b.raddr_segment(0), pair.a.data_segment(0, 8000)];
    pair.a.post(WRITE, SIGNALLED, &segments);
    pair.run_until_idle();
    assert_eq!(
        statuses(&pair.a.cq.poll_all()),
        [(OK, 0)],
        "no timer has expired"
    );
    assert_eq!(pair.b.memory.get(0, 8000), sent);
    let naks = pair.wire.sent.iter().filter(|p| p.header.syndrome == 0x60);
    assert_eq!(naks.count(), 1);
}

#[test]
fn a_lost_read_response_is_requested_again_from_the_missing_packet() {
    let mut pair = Pair::new();
    let mut lost = false;
    pair.wire.delivery_of = Box::new(move |packet| {
        let header = &packet.header;
        let third = header.operation == Operation::ReadResponse && header.psn == 0;
        if third && !std::mem::replace(&mut lost, true) {
            Delivery::Drop
        } else {
            Delivery::Deliver
        }
    });
    let remote_data = pair.b.fill(0, 6000, 2);
    let segments = [pair.b.raddr_segment(0), pair.a.data_segment(0, 6000)];
    pair.a.post(READ, SIGNALLED, &segments);
    pair.run_until_idle();
    assert_eq!(pair.a.memory.get(0, 6000), remote_data);
    let requests: Vec<_> = pair
        .wire
        .sent
        .iter()
        .filter(|packet| packet.header.operation == Operation::ReadRequest)
        .map(|packet| (packet.header.psn, packet.header.length))
        .collect();
    assert_eq!(requests, [(0xff_fffe, 6000), (0, 6000 - 2048)]);
}

/// Posts several operations, and checks that each message has its effect exactly once
/// and in order, whatever happens to the packets.
fn deliver_everything(deliveries: Vec<Delivery>, sizes: Vec<u16>) {
    let mut pair = Pair::with_attributes(QpAttr {
        path_mtu: 1,
        ..attributes()
    });
    // After the listed deliveries the wire has no more faults, so retries succeed.
    let mut deliveries = deliveries.into_iter();
    pair.wire.delivery_of = Box::new(move |_| deliveries.next().unwrap_or(Delivery::Deliver));
    let mut expected = Vec::new();
    for (n, size) in sizes.iter().enumerate() {
        let size = u32::from(*size);
        let slot = n * 2048;
        let data = pair.a.fill(slot, size as usize, n as u8 + 1);
        match n % 3 {
            0 => {
                let receive = pair.b.data_segment(slot, 2048);
                pair.b.qp.post_receive(&[receive]);
                let from = pair.a.data_segment(slot, size.max(1));
                let list = if size == 0 { vec![] } else { vec![from] };
                pair.a.post(SEND, SIGNALLED, &list);
                expected.push((false, slot, data));
            }
            1 => {
                let list = [
                    pair.b.raddr_segment(slot),
                    pair.a.data_segment(slot, size.max(1)),
                ];
                pair.a
                    .post(WRITE, SIGNALLED, &list[..if size == 0 { 1 } else { 2 }]);
                expected.push((false, slot, data));
            }
            _ => {
                let remote_data = pair.b.fill(slot, size as usize, n as u8 ^ 0x80);
                let list = [
                    pair.b.raddr_segment(slot),
                    pair.a.data_segment(slot, size.max(1)),
                ];
                pair.a
                    .post(READ, SIGNALLED, &list[..if size == 0 { 1 } else { 2 }]);
                expected.push((true, slot, remote_data));
            }
        }
    }
    pair.advance(TIMEOUT * 40, TIMEOUT / 2);
    let done = pair.a.cq.poll_all();
    assert!(done.iter().all(|cqe| cqe.syndrome == OK), "{done:?}");
    assert_eq!(done.len(), sizes.len());
    assert_eq!(
        pair.b.cq.poll_all().len(),
        sizes.len().div_ceil(3),
        "each send is received exactly once"
    );
    for (at_a, slot, data) in expected {
        let memory = if at_a { &pair.a.memory } else { &pair.b.memory };
        assert_eq!(memory.get(slot, data.len()), data);
    }
    pair.assert_no_violations();
}

fn delivery() -> impl Strategy<Value = Delivery> {
    prop_oneof![
        6 => Just(Delivery::Deliver),
        1 => Just(Delivery::Drop),
        1 => Just(Delivery::Duplicate),
        1 => Just(Delivery::Reorder),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..Default::default() })]

    #[test]
    fn every_message_has_its_effect_exactly_once_on_a_faulty_wire(
        deliveries in prop::collection::vec(delivery(), 0..60),
        sizes in prop::collection::vec(0_u16..2000, 1..15),
    ) {
        deliver_everything(deliveries, sizes);
    }
}
