//! Everything that ends in an error completion: which one, on which side,
//! and what becomes of the rest.

use super::rig::*;
use crate::nic::spec::*;

const LOCAL_LENGTH: u8 = 0x01;
const LOCAL_QP_OPERATION: u8 = 0x02;
const LOCAL_PROTECTION: u8 = 0x04;
const FLUSHED: u8 = 0x05;
const REMOTE_INVALID: u8 = 0x12;
const REMOTE_ACCESS: u8 = 0x13;
const REMOTE_OPERATION: u8 = 0x14;
const ERR: u8 = 6;

fn a_fails_with(mut world: World, syndrome: u8, opcode: u8, segments: &[Vec<u8>]) -> World {
    // Neither is signalled: errors tell all the same.
    let counter = world.a.post(opcode, 0, segments);
    let next = world.a.post(NOP, 0, &[]);
    world.run();
    let completions = world.a.cq.all();
    assert_eq!(
        outcome(&completions),
        [(syndrome, counter), (FLUSHED, next)]
    );
    assert!(
        completions
            .iter()
            .all(|cqe| cqe.opcode == 13 && cqe.resource == 0x77)
    );
    assert_eq!(completions[1].raw[54], 0xf9);
    assert_eq!(world.a.state(), ERR);
    world
}

fn events_of_b(world: &World) -> Vec<AsyncEvent> {
    let events = world.b.host.events.take();
    let kind = |event| match event {
        Event::Asynchronous(event, _) => Some(event),
        Event::Completion(_) => None,
    };
    events.into_iter().filter_map(kind).collect()
}

#[test]
fn remote_writes_and_reads_outside_their_rights_are_access_errors() {
    let read_only = Access::LOCAL_WRITE | Access::REMOTE_READ;
    type Wrong = fn(&mut World) -> Vec<u8>;
    let wrongs: [Wrong; 4] = [
        |world| remote(world.b.memory.at(), world.b.key ^ 0x10),
        |world| world.b.remote(MEMORY - 99),
        |world| remote(world.b.memory.at() - 1, world.b.key),
        |world| {
            let other = world.b.host.nic.alloc_pd(world.b.host.context).unwrap();
            let mine = std::mem::replace(&mut world.b.host.pd, other);
            let key = world.b.host.key(&world.b.memory, MEMORY as u64, ALL_ACCESS);
            world.b.host.pd = mine;
            remote(world.b.memory.at(), key)
        },
    ];
    for wrong in wrongs {
        for opcode in [WRITE, WRITE_IMM, READ] {
            let mut world = World::new();
            let segments = [wrong(&mut world), world.a.segment(0, 100)];
            let world = a_fails_with(world, REMOTE_ACCESS, opcode, &segments);
            assert_eq!(world.b.state(), ERR);
            assert_eq!(events_of_b(&world), [AsyncEvent::QpAccessErr]);
        }
    }
    let mut world = World::new();
    let key = world.b.host.key(&world.b.memory, 4096, read_only);
    let to = remote(world.b.memory.at(), key);
    let segments = [to, world.a.segment(0, 100)];
    a_fails_with(world, REMOTE_ACCESS, WRITE, &segments);
}

#[test]
fn the_qps_own_rights_count_too() {
    for (opcode, missing) in [(WRITE, Access::REMOTE_WRITE), (READ, Access::REMOTE_READ)] {
        let attr = QpAttr {
            access: ALL_ACCESS.difference(missing),
            ..attributes()
        };
        let world = World::with(attr);
        let segments = [world.b.remote(0), world.a.segment(0, 100)];
        a_fails_with(world, REMOTE_ACCESS, opcode, &segments);
    }
    let world = World::with(QpAttr {
        max_dest_rd_atomic: 0,
        ..attributes()
    });
    let segments = [world.b.remote(0), world.a.segment(0, 100)];
    a_fails_with(world, REMOTE_ACCESS, READ, &segments);
}

#[test]
fn more_reads_than_the_responder_takes_are_an_invalid_request() {
    let world = World::with(QpAttr {
        max_rd_atomic: 4,
        max_dest_rd_atomic: 1,
        ..attributes()
    });
    let mut world = world;
    let segments = [world.b.remote(0), world.a.segment(0, 100)];
    for _ in 0..4 {
        world.a.post(READ, SIGNALLED, &segments);
    }
    world.run();
    let outcome = outcome(&world.a.cq.all());
    assert!(
        outcome
            .iter()
            .any(|(syndrome, _)| *syndrome == REMOTE_INVALID),
        "{outcome:?}"
    );
    assert_eq!(events_of_b(&world), [AsyncEvent::QpReqErr]);
}

#[test]
fn local_segments_outside_their_rights_are_protection_errors() {
    let world = World::new();
    let segments = [
        world.b.remote(0),
        pointer(100, world.a.key ^ 0x1, world.a.memory.at()),
    ];
    a_fails_with(world, LOCAL_PROTECTION, WRITE, &segments);

    let world = World::new();
    let segments = [world.a.segment(MEMORY - 10, 11)];
    a_fails_with(world, LOCAL_PROTECTION, SEND, &segments);

    let mut world = World::new();
    let key = world.a.host.key(&world.a.memory, 4096, Access::empty());
    let segments = [world.b.remote(0), pointer(100, key, world.a.memory.at())];
    a_fails_with(world, LOCAL_PROTECTION, READ, &segments);

    let mut world = World::new();
    let spec = MrSpec {
        context: world.a.host.context,
        pd: world.a.host.nic.alloc_pd(world.a.host.context).unwrap(),
        start: world.a.memory.at(),
        length: 100,
        hca_va: world.a.memory.at(),
        access: Access::LOCAL_WRITE,
    };
    let foreign = world.a.host.nic.reg_mr(&spec).unwrap();
    let segments = [pointer(100, foreign.lkey, world.a.memory.at())];
    a_fails_with(world, LOCAL_PROTECTION, SEND, &segments);
}

#[test]
fn a_deregistered_key_opens_nothing() {
    let mut world = World::new();
    let spec = MrSpec {
        context: world.b.host.context,
        pd: world.b.host.pd,
        start: world.b.memory.at(),
        length: 100,
        hca_va: world.b.memory.at(),
        access: ALL_ACCESS,
    };
    let keys = world.b.host.nic.reg_mr(&spec).unwrap();
    let segments = [remote(spec.start, keys.rkey), world.a.segment(0, 100)];
    world.a.post(WRITE, SIGNALLED, &segments);
    world.run();
    assert_eq!(outcome(&world.a.cq.all()), [(OK, 0)]);
    world
        .b
        .host
        .nic
        .dereg_mr(spec.context, keys.handle)
        .unwrap();
    a_fails_with(world, REMOTE_ACCESS, WRITE, &segments);
}

#[test]
fn a_changed_region_opens_what_it_says_then_under_the_same_key() {
    let mut world = World::new();
    let host = &mut world.b.host;
    let spec = MrSpec {
        context: host.context,
        pd: host.pd,
        start: world.b.memory.at(),
        length: 100,
        hca_va: world.b.memory.at(),
        access: ALL_ACCESS,
    };
    let keys = host.nic.reg_mr(&spec).unwrap();
    let elsewhere = host.nic.alloc_pd(host.context).unwrap();
    let moved = MrSpec {
        start: spec.start + 50,
        hca_va: 0x7000_0000,
        pd: elsewhere,
        ..spec
    };
    let invalid = Err(crate::nic::spec::Errno(libc::EINVAL));
    assert_eq!(host.nic.rereg_mr(keys.handle + 77, &moved, true), invalid);
    let nowhere = MrSpec {
        start: 0x1000,
        ..moved
    };
    let fault = Err(crate::nic::spec::Errno(libc::EFAULT));
    assert_eq!(host.nic.rereg_mr(keys.handle, &nowhere, true), fault);

    // Refused, it is as it was.
    let segments = [remote(spec.start, keys.rkey), world.a.segment(0, 100)];
    world.a.post(WRITE, SIGNALLED, &segments);
    world.run();
    assert_eq!(outcome(&world.a.cq.all()), [(OK, 0)]);

    let host = &mut world.b.host;
    host.nic.rereg_mr(keys.handle, &moved, true).unwrap();
    let busy = Err(crate::nic::spec::Errno(libc::EBUSY));
    assert_eq!(
        host.nic.dealloc_pd(elsewhere),
        busy,
        "it is in this one now"
    );
    let back = MrSpec {
        pd: spec.pd,
        ..moved
    };
    host.nic.rereg_mr(keys.handle, &back, false).unwrap();
    assert_eq!(host.nic.dealloc_pd(elsewhere), Ok(()));
    let there = [remote(0x7000_0000, keys.rkey), world.a.segment(0, 50)];
    world.a.post(WRITE, SIGNALLED, &there);
    world.run();
    assert_eq!(outcome(&world.a.cq.all()), [(OK, 1)]);
    a_fails_with(world, REMOTE_ACCESS, WRITE, &segments);
}

#[test]
fn a_message_longer_than_the_receive_fails_both_sides() {
    let mut world = World::new();
    let receive = world.b.segment(0, 2999);
    world.b.qp.post_receive(std::slice::from_ref(&receive));
    world.b.qp.post_receive(&[receive]);
    let segments = [world.a.segment(0, 3000)];
    let mut world = a_fails_with(world, REMOTE_INVALID, SEND, &segments);
    let received = world.b.cq.all();
    assert_eq!(outcome(&received), [(LOCAL_LENGTH, 0), (FLUSHED, 1)]);
    assert!(received.iter().all(|cqe| cqe.opcode == 14));
    assert_eq!(world.b.state(), ERR);
}

#[test]
fn a_receive_into_memory_of_others_fails_both_sides() {
    let mut world = World::new();
    let bad = pointer(100, world.b.key ^ 0x100, world.b.memory.at());
    world.b.qp.post_receive(&[bad]);
    let segments = [world.a.segment(0, 100)];
    let mut world = a_fails_with(world, REMOTE_OPERATION, SEND, &segments);
    assert_eq!(outcome(&world.b.cq.all()), [(LOCAL_PROTECTION, 0)]);
}

#[test]
fn a_posted_byte_count_of_zero_is_two_to_the_31() {
    let world = World::new();
    let segments = [world.a.segment(0, 0)];
    a_fails_with(world, LOCAL_LENGTH, SEND, &segments);
    // As a receive it is a segment without end, which its region is not.
    let mut world = World::new();
    let receive = world.b.segment(MEMORY - 50, 0);
    world.b.qp.post_receive(&[receive]);
    let segments = [world.a.segment(0, 60)];
    a_fails_with(world, REMOTE_OPERATION, SEND, &segments);
}

#[test]
fn messages_above_the_largest_are_length_errors() {
    let world = World::new();
    let big = pointer((1 << 30) + 1, world.a.key, world.a.memory.at());
    a_fails_with(world, LOCAL_LENGTH, SEND, &[big]);
}

#[test]
fn wqes_that_make_no_sense_are_operation_errors() {
    type Spoil = fn(&mut TestQp);
    let spoils: [(&str, Spoil); 4] = [
        ("unknown opcode", |qp| qp.sq.put(3, &[0x7e])),
        ("foreign QP", |qp| qp.sq.put(4, &[9])),
        ("wrong index", |qp| qp.sq.put(2, &[5])),
        ("no segments", |qp| qp.sq.put(7, &[0])),
    ];
    for (what, set_error) in spoils {
        let mut host = Host::with(crate::nic::NicOptions {
            view: DoorbellView::Register,
            ..Default::default()
        });
        let mut cq = host.cq(64, 64);
        let mut qp = host.qp(host.qp_spec(cq.cqn));
        bring_up(&mut host.nic, qp.qpn, qp.qpn, attributes());
        qp.write(SEND, 0, &[]);
        set_error(&mut qp);
        qp.ring(&mut host);
        host.nic.work(1, &mut super::wire::Wire::new(), 64);
        assert_eq!(outcome(&cq.all()), [(LOCAL_QP_OPERATION, 0)], "{what}");
        assert_eq!(host.nic.violations().count(), 1, "{what}");
    }
}

#[test]
fn inline_data_longer_than_the_wqe_and_reads_into_it_are_operation_errors() {
    let mut long = inline(&[1; 8]);
    long[3] = 200;
    a_fails_with(World::new(), LOCAL_QP_OPERATION, SEND, &[long]);
    let world = World::new();
    let segments = [world.b.remote(0), inline(&[1; 8])];
    a_fails_with(world, LOCAL_QP_OPERATION, READ, &segments);
}

#[test]
fn an_error_waits_for_the_completions_before_it() {
    let mut world = World::new();
    let good = [world.b.remote(0), world.a.segment(0, 5000)];
    let read = [world.b.remote(0), world.a.segment(0, 5000)];
    let bad = [world.b.remote(0), pointer(4, 0xbad, 0x10000)];
    world.a.post(WRITE, SIGNALLED, &good);
    world.a.post(READ, SIGNALLED, &read);
    world.a.post(WRITE, 0, &bad);
    world.a.post(WRITE, 0, &good);
    world.run();
    let expected = [(OK, 0), (OK, 1), (LOCAL_PROTECTION, 2), (FLUSHED, 3)];
    assert_eq!(outcome(&world.a.cq.all()), expected);
}

#[test]
fn going_to_error_flushes_both_queues_in_order() {
    let mut world = World::new();
    for n in 0..3 {
        let receive = world.a.segment(n, 64);
        world.a.qp.post_receive(&[receive]);
    }
    // Under way, and not begun; the second takes two blocks.
    world.a.post(SEND, SIGNALLED, &[inline(b"x")]);
    world.a.host.nic.work(1, &mut world.wire, 64);
    world.a.post(SEND, 0, &[inline(&[0; 60])]);
    world.a.post(NOP, 0, &[]);
    set_state(&mut world.a.host.nic, world.a.qp.qpn, ERR);
    let all = world.a.cq.all();
    let (sends, receives): (Vec<_>, Vec<_>) = all.into_iter().partition(|cqe| cqe.opcode == 13);
    assert_eq!(outcome(&sends), [(FLUSHED, 0), (FLUSHED, 1), (FLUSHED, 3)]);
    assert_eq!(
        outcome(&receives),
        [(FLUSHED, 0), (FLUSHED, 1), (FLUSHED, 2)]
    );
    // What is posted later is flushed as well.
    let counter = world.a.post(NOP, 0, &[]);
    assert_eq!(outcome(&world.a.cq.all()), [(FLUSHED, counter)]);
    let receive = world.a.segment(0, 64);
    world.a.qp.post_receive(&[receive]);
    let progress = world.a.host.nic.work(2, &mut world.wire, 64);
    assert_eq!(outcome(&world.a.cq.all()), [(FLUSHED, 3)]);
    assert!(progress.next_deadline.is_some(), "it looks again by itself");
}

#[test]
fn a_message_cut_off_by_an_error_flushes_the_receive_in_use() {
    let mut world = World::new();
    let receive = world.b.segment(0, 9000);
    world.b.qp.post_receive(&[receive]);
    world.wire.decide = Box::new(|packet| {
        use crate::fabric::packet::PacketFlags;
        let last = packet.header.flags.contains(PacketFlags::LAST);
        if last {
            super::wire::Fate::IsLost
        } else {
            super::wire::Fate::Arrives
        }
    });
    let segments = [world.a.segment(0, 9000)];
    world.a.post(SEND, 0, &segments);
    world.run();
    set_state(&mut world.b.host.nic, world.b.qp.qpn, ERR);
    assert_eq!(outcome(&world.b.cq.all()), [(FLUSHED, 0)]);
}

#[test]
fn reset_forgets_everything_and_the_qp_can_be_used_again() {
    let mut world = World::new();
    let segments = [world.b.remote(0), pointer(4, 0xbad, 0x10000)];
    world.a.post(WRITE, 0, &segments);
    world.run();
    world.a.cq.all();
    for end in [&mut world.a, &mut world.b] {
        set_state(&mut end.host.nic, end.qp.qpn, 0);
        (end.qp.posted, end.qp.received) = (0, 0);
        end.qp.dbrec.put(0, &[0; 8]);
    }
    let (a, b) = (world.a.qp.qpn, world.b.qp.qpn);
    bring_up(&mut world.a.host.nic, a, b, attributes());
    bring_up(&mut world.b.host.nic, b, a, attributes());
    let receive = world.b.segment(0, 64);
    world.b.qp.post_receive(&[receive]);
    world.a.post(SEND, SIGNALLED, &[inline(b"again")]);
    world.run();
    assert_eq!(outcome(&world.a.cq.all()), [(OK, 0)]);
    assert_eq!(outcome(&world.b.cq.all()), [(OK, 0)]);
}
