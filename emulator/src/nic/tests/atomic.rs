//! Compare-and-swap and fetch-and-add.

use super::fixtures::*;
use crate::fabric::packet::Operation;
use crate::spec::*;
use proptest::prelude::*;

const COMPARE_SWAP: u8 = 0x11;
const FETCH_ADD: u8 = 0x12;
const LOCAL_LENGTH: u8 = 0x01;
const LOCAL_QP_OPERATION: u8 = 0x02;
const LOCAL_PROTECTION: u8 = 0x04;
const REMOTE_INVALID: u8 = 0x12;
const REMOTE_ACCESS: u8 = 0x13;
/// The ack timeout for the encoded value 14.
const TIMEOUT: u64 = 4096 << 14;

fn with_atomics() -> QpAttr {
    QpAttr {
        access: ALL_ACCESS | Access::REMOTE_ATOMIC,
        ..attributes()
    }
}

/// Returns a pair whose QPs and regions permit remote atomics.
fn pair_with(attr: QpAttr) -> Pair {
    let mut pair = Pair::with_attributes(attr);
    enable_atomics(&mut pair.a);
    enable_atomics(&mut pair.b);
    pair
}

fn enable_atomics(peer: &mut Peer) {
    let access = ALL_ACCESS | Access::REMOTE_ATOMIC;
    peer.key = peer
        .host
        .register_buffer(&peer.memory, MEMORY_SIZE as u64, access);
}

fn operands(swap_add: u64, compare: u64) -> Vec<u8> {
    [swap_add.to_be_bytes(), compare.to_be_bytes()].concat()
}

fn read_u64(memory: &Buffer, offset: usize) -> u64 {
    u64::from_ne_bytes(memory.get(offset, 8).try_into().unwrap())
}

/// Posts an atomic at A on B's word at `remote_offset`; the original value is placed at A's `local_offset`.
fn post(
    pair: &mut Pair,
    opcode: u8,
    remote_offset: usize,
    operands: Vec<u8>,
    local_offset: usize,
) -> u16 {
    let segments = [
        pair.b.raddr_segment(remote_offset),
        operands,
        pair.a.data_segment(local_offset, 8),
    ];
    pair.a.post(opcode, SIGNALLED, &segments)
}

#[test]
fn both_atomics_return_the_original_value_and_change_one_word() {
    let mut pair = pair_with(with_atomics());
    pair.b.memory.put(16, &7_u64.to_ne_bytes());
    post(&mut pair, FETCH_ADD, 16, operands(5, 0), 0);
    post(&mut pair, COMPARE_SWAP, 16, operands(99, 11), 8);
    post(&mut pair, COMPARE_SWAP, 16, operands(u64::MAX, 12), 16);
    post(&mut pair, FETCH_ADD, 16, operands(2, 0), 24);
    pair.run_until_idle();
    let originals: Vec<_> = (0..4).map(|n| read_u64(&pair.a.memory, 8 * n)).collect();
    assert_eq!(originals, [7, 12, 12, u64::MAX]);
    assert_eq!(read_u64(&pair.b.memory, 16), 1, "the sum wraps");
    assert_eq!(
        (read_u64(&pair.b.memory, 8), read_u64(&pair.b.memory, 24)),
        (0, 0)
    );
    let done = pair.a.cq.poll_all();
    let reported: Vec<_> = done.iter().map(|cqe| (cqe.wqe_opcode, cqe.bytes)).collect();
    let (add, swap) = ((FETCH_ADD, 8), (COMPARE_SWAP, 8));
    assert_eq!(reported, [add, swap, swap, add]);
    assert!(pair.b.cq.poll().is_none(), "no completion at the responder");
    pair.assert_no_violations();
}

#[test]
fn the_original_value_may_be_scattered_to_the_cqe() {
    let a = peer(Host::new(1), |spec| {
        spec.scatter_responses = true;
    });
    let mut pair = Pair::connect(a, peer(Host::new(2), |_| {}), with_atomics());
    enable_atomics(&mut pair.b);
    pair.b.memory.put(0, &0x1122_3344_u64.to_ne_bytes());
    post(&mut pair, FETCH_ADD, 0, operands(1, 0), 0);
    pair.run_until_idle();
    let cqe = pair.a.cq.poll().unwrap();
    assert_eq!((cqe.syndrome, cqe.bytes, cqe.format), (OK, 8, 1));
    assert_eq!(cqe.raw[..8], 0x1122_3344_u64.to_ne_bytes());
    assert_eq!(read_u64(&pair.a.memory, 0), 0, "memory is not written");
}

/// Checks that an atomic fails at A with this syndrome. Returns the events of B.
fn failing_atomic(
    mut pair: Pair,
    syndrome: u8,
    raddr_segment: Vec<u8>,
    data: Vec<u8>,
) -> Vec<Event> {
    let counter = pair
        .a
        .post(FETCH_ADD, 0, &[raddr_segment, operands(1, 0), data]);
    pair.run_until_idle();
    assert_eq!(statuses(&pair.a.cq.poll_all()), [(syndrome, counter)]);
    assert_eq!(read_u64(&pair.b.memory, 0), 0, "not executed");
    pair.b.host.events.take()
}

#[test]
fn region_and_qp_must_permit_remote_atomics() {
    let event = |kind| [Event::Asynchronous(kind, AsyncObject::Qp(0xa0))];
    let access_error = event(AsyncEvent::QpAccessErr);
    // A region without the permission, and one that is too short.
    for (access, length) in [(ALL_ACCESS, 64), (ALL_ACCESS | Access::REMOTE_ATOMIC, 7)] {
        let mut pair = pair_with(with_atomics());
        let key = pair.b.host.register_buffer(&pair.b.memory, length, access);
        let (to, from) = (
            raddr_segment(pair.b.memory.at(), key),
            pair.a.data_segment(0, 8),
        );
        assert_eq!(failing_atomic(pair, REMOTE_ACCESS, to, from), access_error);
    }
    for attr in [
        attributes(),
        QpAttr {
            max_dest_rd_atomic: 0,
            ..with_atomics()
        },
    ] {
        let pair = pair_with(attr);
        let (to, from) = (pair.b.raddr_segment(0), pair.a.data_segment(0, 8));
        let invalid_request = event(AsyncEvent::QpReqErr);
        assert_eq!(
            failing_atomic(pair, REMOTE_INVALID, to, from),
            invalid_request
        );
    }
}

#[test]
fn an_unaligned_address_is_an_invalid_request() {
    let event = Event::Asynchronous(AsyncEvent::QpReqErr, AsyncObject::Qp(0xa0));
    for offset in [1, 4] {
        let pair = pair_with(with_atomics());
        let (to, from) = (pair.b.raddr_segment(offset), pair.a.data_segment(0, 8));
        assert_eq!(failing_atomic(pair, REMOTE_INVALID, to, from), [event]);
    }
}

#[test]
fn the_response_needs_eight_writable_bytes() {
    for length in [4, 16] {
        let pair = pair_with(with_atomics());
        let (to, from) = (pair.b.raddr_segment(0), pair.a.data_segment(0, length));
        assert_eq!(failing_atomic(pair, LOCAL_LENGTH, to, from), []);
    }
    let mut pair = pair_with(with_atomics());
    let key = pair
        .a
        .host
        .register_buffer(&pair.a.memory, 64, Access::empty());
    let from = data_segment(8, key, pair.a.memory.at());
    let to = pair.b.raddr_segment(0);
    assert_eq!(failing_atomic(pair, LOCAL_PROTECTION, to, from), []);
    let pair = pair_with(with_atomics());
    let to = pair.b.raddr_segment(0);
    assert_eq!(
        failing_atomic(pair, LOCAL_QP_OPERATION, to, inline_segment(&[0; 8])),
        []
    );
}

#[test]
fn atomics_and_reads_share_the_limit_of_outstanding_requests() {
    let mut pair = pair_with(QpAttr {
        max_rd_atomic: 2,
        ..with_atomics()
    });
    let read = [pair.b.raddr_segment(0), pair.a.data_segment(64, 100)];
    pair.a.post(READ, SIGNALLED, &read);
    for n in 0..4 {
        post(&mut pair, FETCH_ADD, 0, operands(1, 0), 8 * n);
    }
    pair.a.host.nic.work(1, &mut pair.wire, 64);
    assert_eq!(
        pair.wire.packets.len(),
        2,
        "the read and one atomic are outstanding"
    );
    pair.run_until_idle();
    assert_eq!(pair.a.cq.poll_all().len(), 5);
    assert_eq!(read_u64(&pair.b.memory, 0), 4);
}

#[test]
fn more_outstanding_atomics_than_the_responder_supports_are_an_invalid_request() {
    let mut pair = pair_with(QpAttr {
        max_dest_rd_atomic: 1,
        ..with_atomics()
    });
    for _ in 0..3 {
        post(&mut pair, FETCH_ADD, 0, operands(1, 0), 0);
    }
    pair.run_until_idle();
    let failed = statuses(&pair.a.cq.poll_all());
    assert!(
        failed
            .iter()
            .any(|(syndrome, _)| *syndrome == REMOTE_INVALID),
        "{failed:?}"
    );
}

#[test]
fn a_fenced_request_waits_for_atomics() {
    let mut pair = pair_with(with_atomics());
    post(&mut pair, FETCH_ADD, 0, operands(1, 0), 0);
    let write = [pair.b.raddr_segment(64), inline_segment(b"after")];
    pair.a.post(WRITE, SIGNALLED | FENCE, &write);
    pair.a.host.nic.work(1, &mut pair.wire, 64);
    assert_eq!(pair.wire.packets.len(), 1, "the write waits");
    pair.run_until_idle();
    assert_eq!(statuses(&pair.a.cq.poll_all()), [(OK, 0), (OK, 1)]);
}

#[test]
fn an_atomic_whose_response_is_lost_is_executed_once() {
    let mut pair = pair_with(with_atomics());
    let mut lost = 0;
    pair.wire.delivery_of = Box::new(move |packet| {
        let is_response = packet.header.operation == Operation::AtomicResponse;
        lost += usize::from(is_response);
        if is_response && lost <= 2 {
            Delivery::Drop
        } else {
            Delivery::Deliver
        }
    });
    pair.b.memory.put(0, &40_u64.to_ne_bytes());
    post(&mut pair, FETCH_ADD, 0, operands(2, 0), 0);
    pair.advance(TIMEOUT * 4, TIMEOUT / 2);
    assert_eq!(statuses(&pair.a.cq.poll_all()), [(OK, 0)]);
    assert_eq!(
        (read_u64(&pair.a.memory, 0), read_u64(&pair.b.memory, 0)),
        (40, 42)
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..Default::default() })]

    #[test]
    fn every_atomic_is_executed_exactly_once_in_order_on_a_faulty_wire(
        deliveries in prop::collection::vec(prop_oneof![
            5 => Just(Delivery::Deliver),
            1 => Just(Delivery::Drop),
            1 => Just(Delivery::Duplicate),
            1 => Just(Delivery::Reorder),
        ], 0..60),
        adds in prop::collection::vec(1_u64..1000, 1..30),
    ) {
        let mut pair = pair_with(QpAttr { max_rd_atomic: 16, max_dest_rd_atomic: 16, ..with_atomics() });
        let mut deliveries = deliveries.into_iter();
        pair.wire.delivery_of = Box::new(move |_| deliveries.next().unwrap_or(Delivery::Deliver));
        let mut sum = 0;
        let mut expected = Vec::new();
        for (n, add) in adds.iter().enumerate() {
            post(&mut pair, FETCH_ADD, 0, operands(*add, 0), 8 * n);
            expected.push(sum);
            sum += add;
        }
        pair.advance(TIMEOUT * 40, TIMEOUT / 2);
        let done = pair.a.cq.poll_all();
        prop_assert!(done.len() == adds.len() && done.iter().all(|cqe| cqe.syndrome == OK), "{:?}", done);
        let originals: Vec<_> = (0..adds.len()).map(|n| read_u64(&pair.a.memory, 8 * n)).collect();
        prop_assert_eq!(originals, expected);
        prop_assert_eq!(read_u64(&pair.b.memory, 0), sum);
    }
}
