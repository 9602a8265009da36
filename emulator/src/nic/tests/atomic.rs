//! Compare-and-swap and fetch-and-add.

use super::rig::*;
use super::wire::Fate;
use crate::fabric::packet::Operation;
use crate::nic::spec::*;
use proptest::prelude::*;

const COMPARE_SWAP: u8 = 0x11;
const FETCH_ADD: u8 = 0x12;
const LOCAL_LENGTH: u8 = 0x01;
const LOCAL_QP_OPERATION: u8 = 0x02;
const LOCAL_PROTECTION: u8 = 0x04;
const REMOTE_INVALID: u8 = 0x12;
const REMOTE_ACCESS: u8 = 0x13;
/// The ack timeout of code 14.
const TIMEOUT: u64 = 4096 << 14;

fn with_atomics() -> QpAttr {
    QpAttr {
        access: ALL_ACCESS | Access::REMOTE_ATOMIC,
        ..attributes()
    }
}

/// A world whose ends allow atomics, on their memory too.
fn world_with(attr: QpAttr) -> World {
    let mut world = World::with(attr);
    allow(&mut world.a);
    allow(&mut world.b);
    world
}

fn allow(end: &mut End) {
    let access = ALL_ACCESS | Access::REMOTE_ATOMIC;
    end.key = end.host.key(&end.memory, MEMORY as u64, access);
}

fn operands(swap_add: u64, compare: u64) -> Vec<u8> {
    [swap_add.to_be_bytes(), compare.to_be_bytes()].concat()
}

fn word(memory: &Buffer, offset: usize) -> u64 {
    u64::from_ne_bytes(memory.get(offset, 8).try_into().unwrap())
}

/// Posts one at A on B's word at `there`; the original goes to A's `here`.
fn post(world: &mut World, opcode: u8, there: usize, operands: Vec<u8>, here: usize) -> u16 {
    let segments = [world.b.remote(there), operands, world.a.segment(here, 8)];
    world.a.post(opcode, SIGNALLED, &segments)
}

#[test]
fn both_answer_what_was_there_and_change_one_word() {
    let mut world = world_with(with_atomics());
    world.b.memory.put(16, &7_u64.to_ne_bytes());
    post(&mut world, FETCH_ADD, 16, operands(5, 0), 0);
    post(&mut world, COMPARE_SWAP, 16, operands(99, 11), 8);
    post(&mut world, COMPARE_SWAP, 16, operands(u64::MAX, 12), 16);
    post(&mut world, FETCH_ADD, 16, operands(2, 0), 24);
    world.run();
    let originals: Vec<_> = (0..4).map(|n| word(&world.a.memory, 8 * n)).collect();
    assert_eq!(originals, [7, 12, 12, u64::MAX]);
    assert_eq!(word(&world.b.memory, 16), 1, "it wraps");
    assert_eq!(
        (word(&world.b.memory, 8), word(&world.b.memory, 24)),
        (0, 0)
    );
    let done = world.a.cq.all();
    let told: Vec<_> = done.iter().map(|cqe| (cqe.wqe_opcode, cqe.bytes)).collect();
    let (add, swap) = ((FETCH_ADD, 8), (COMPARE_SWAP, 8));
    assert_eq!(told, [add, swap, swap, add]);
    assert!(world.b.cq.poll().is_none(), "the responder is not told");
    world.assert_no_violations();
}

#[test]
fn the_original_may_come_in_the_cqe() {
    let a = end(Host::new(1), |spec| {
        spec.scatter_responses = true;
    });
    let mut world = World::of(a, end(Host::new(2), |_| {}), with_atomics());
    allow(&mut world.b);
    world.b.memory.put(0, &0x1122_3344_u64.to_ne_bytes());
    post(&mut world, FETCH_ADD, 0, operands(1, 0), 0);
    world.run();
    let cqe = world.a.cq.poll().unwrap();
    assert_eq!((cqe.syndrome, cqe.bytes, cqe.format), (OK, 8, 1));
    assert_eq!(cqe.raw[..8], 0x1122_3344_u64.to_ne_bytes());
    assert_eq!(word(&world.a.memory, 0), 0, "nothing is placed");
}

/// One atomic fails so at A; answers the events of B.
fn refused(mut world: World, syndrome: u8, remote: Vec<u8>, data: Vec<u8>) -> Vec<Event> {
    let counter = world.a.post(FETCH_ADD, 0, &[remote, operands(1, 0), data]);
    world.run();
    assert_eq!(outcome(&world.a.cq.all()), [(syndrome, counter)]);
    assert_eq!(word(&world.b.memory, 0), 0, "not executed");
    world.b.host.events.take()
}

#[test]
fn the_region_and_the_qp_must_allow_it() {
    let refused_access = [Event::Asynchronous(
        AsyncEvent::QpAccessErr,
        AsyncObject::Qp(0xa0),
    )];
    // A key without the right, and one that ends too early.
    for (access, length) in [(ALL_ACCESS, 64), (ALL_ACCESS | Access::REMOTE_ATOMIC, 7)] {
        let mut world = world_with(with_atomics());
        let key = world.b.host.key(&world.b.memory, length, access);
        let (to, from) = (remote(world.b.memory.at(), key), world.a.segment(0, 8));
        assert_eq!(refused(world, REMOTE_ACCESS, to, from), refused_access);
    }
    for attr in [
        attributes(),
        QpAttr {
            max_dest_rd_atomic: 0,
            ..with_atomics()
        },
    ] {
        let world = world_with(attr);
        let (to, from) = (world.b.remote(0), world.a.segment(0, 8));
        assert_eq!(refused(world, REMOTE_ACCESS, to, from), refused_access);
    }
}

#[test]
fn a_word_that_is_not_aligned_is_an_invalid_request() {
    let event = Event::Asynchronous(AsyncEvent::QpReqErr, AsyncObject::Qp(0xa0));
    for offset in [1, 4] {
        let world = world_with(with_atomics());
        let (to, from) = (world.b.remote(offset), world.a.segment(0, 8));
        assert_eq!(refused(world, REMOTE_INVALID, to, from), [event]);
    }
}

#[test]
fn the_answer_needs_eight_bytes_that_may_be_written() {
    for length in [4, 16] {
        let world = world_with(with_atomics());
        let (to, from) = (world.b.remote(0), world.a.segment(0, length));
        assert_eq!(refused(world, LOCAL_LENGTH, to, from), []);
    }
    let mut world = world_with(with_atomics());
    let key = world.a.host.key(&world.a.memory, 64, Access::empty());
    let from = pointer(8, key, world.a.memory.at());
    let to = world.b.remote(0);
    assert_eq!(refused(world, LOCAL_PROTECTION, to, from), []);
    let world = world_with(with_atomics());
    let to = world.b.remote(0);
    assert_eq!(refused(world, LOCAL_QP_OPERATION, to, inline(&[0; 8])), []);
}

#[test]
fn atomics_and_reads_share_what_may_be_outstanding() {
    let mut world = world_with(QpAttr {
        max_rd_atomic: 2,
        ..with_atomics()
    });
    let read = [world.b.remote(0), world.a.segment(64, 100)];
    world.a.post(READ, SIGNALLED, &read);
    for n in 0..4 {
        post(&mut world, FETCH_ADD, 0, operands(1, 0), 8 * n);
    }
    world.a.host.nic.work(1, &mut world.wire, 64);
    assert_eq!(world.wire.packets.len(), 2, "the read and one atomic");
    world.run();
    assert_eq!(world.a.cq.all().len(), 5);
    assert_eq!(word(&world.b.memory, 0), 4);
}

#[test]
fn more_than_the_responder_takes_is_an_invalid_request() {
    let mut world = world_with(QpAttr {
        max_dest_rd_atomic: 1,
        ..with_atomics()
    });
    for _ in 0..3 {
        post(&mut world, FETCH_ADD, 0, operands(1, 0), 0);
    }
    world.run();
    let failed = outcome(&world.a.cq.all());
    assert!(
        failed
            .iter()
            .any(|(syndrome, _)| *syndrome == REMOTE_INVALID),
        "{failed:?}"
    );
}

#[test]
fn a_fenced_request_waits_for_atomics_too() {
    let mut world = world_with(with_atomics());
    post(&mut world, FETCH_ADD, 0, operands(1, 0), 0);
    let write = [world.b.remote(64), inline(b"after")];
    world.a.post(WRITE, SIGNALLED | FENCE, &write);
    world.a.host.nic.work(1, &mut world.wire, 64);
    assert_eq!(world.wire.packets.len(), 1, "the write stays behind");
    world.run();
    assert_eq!(outcome(&world.a.cq.all()), [(OK, 0), (OK, 1)]);
}

#[test]
fn an_atomic_whose_answer_is_lost_is_executed_once() {
    let mut world = world_with(with_atomics());
    let mut lost = 0;
    world.wire.decide = Box::new(move |packet| {
        let is_answer = packet.header.operation == Operation::AtomicResponse;
        lost += usize::from(is_answer);
        if is_answer && lost <= 2 {
            Fate::IsLost
        } else {
            Fate::Arrives
        }
    });
    world.b.memory.put(0, &40_u64.to_ne_bytes());
    post(&mut world, FETCH_ADD, 0, operands(2, 0), 0);
    world.pass(TIMEOUT * 4, TIMEOUT / 2);
    assert_eq!(outcome(&world.a.cq.all()), [(OK, 0)]);
    assert_eq!(
        (word(&world.a.memory, 0), word(&world.b.memory, 0)),
        (40, 42)
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..Default::default() })]

    #[test]
    fn every_atomic_is_executed_exactly_once_in_order_on_a_bad_wire(
        fates in prop::collection::vec(prop_oneof![
            5 => Just(Fate::Arrives),
            1 => Just(Fate::IsLost),
            1 => Just(Fate::ArrivesTwice),
            1 => Just(Fate::IsOvertaken),
        ], 0..60),
        adds in prop::collection::vec(1_u64..1000, 1..30),
    ) {
        let mut world = world_with(QpAttr { max_rd_atomic: 16, max_dest_rd_atomic: 16, ..with_atomics() });
        let mut fates = fates.into_iter();
        world.wire.decide = Box::new(move |_| fates.next().unwrap_or(Fate::Arrives));
        let mut sum = 0;
        let mut expected = Vec::new();
        for (n, add) in adds.iter().enumerate() {
            post(&mut world, FETCH_ADD, 0, operands(*add, 0), 8 * n);
            expected.push(sum);
            sum += add;
        }
        world.pass(TIMEOUT * 40, TIMEOUT / 2);
        let done = world.a.cq.all();
        prop_assert!(done.len() == adds.len() && done.iter().all(|cqe| cqe.syndrome == OK), "{:?}", done);
        let originals: Vec<_> = (0..adds.len()).map(|n| word(&world.a.memory, 8 * n)).collect();
        prop_assert_eq!(originals, expected);
        prop_assert_eq!(word(&world.b.memory, 0), sum);
    }
}
