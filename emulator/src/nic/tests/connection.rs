//! Each operation of the reliable connection, well-behaved.

use super::rig::*;
use crate::nic::spec::*;

#[test]
fn a_send_of_many_packets_arrives_whole_and_completes_both_sides() {
    let mut world = World::new();
    let sent = world.a.fill(0, 5000, 1);
    let receive = [world.b.segment(100, 1000), world.b.segment(8000, 6000)];
    world.b.qp.post_receive(&receive);
    let segments = [world.a.segment(0, 2000), world.a.segment(2000, 3000)];
    let counter = world.a.post(SEND_IMM, SIGNALLED, &segments);
    world.run();
    let received = world.b.cq.poll().unwrap();
    assert_eq!(
        (received.opcode, received.bytes, received.counter),
        (3, 5000, 0)
    );
    assert_eq!(received.immediate, [0xca, 0xfe, 0xba, 0xbe]);
    assert_eq!((received.qpn, received.resource), (world.b.qp.qpn.0, 0x77));
    assert_eq!(world.b.memory.get(100, 1000), sent[..1000]);
    assert_eq!(world.b.memory.get(8000, 4000), sent[1000..]);
    let done = world.a.cq.poll().unwrap();
    assert_eq!(
        (done.opcode, done.wqe_opcode, done.counter),
        (0, SEND_IMM, counter)
    );
    world.assert_no_violations();
}

#[test]
fn two_qps_of_one_nic_talk_to_each_other() {
    let mut host = Host::new(1);
    let mut cq = host.cq(64, 64);
    let spec = host.qp_spec(cq.cqn);
    let (mut a, mut b) = (host.qp(spec), host.qp(spec));
    bring_up(&mut host.nic, a.qpn, b.qpn, attributes());
    bring_up(&mut host.nic, b.qpn, a.qpn, attributes());
    let mut memory = Buffer::new(256);
    let key = host.key(&memory, 256, ALL_ACCESS);
    memory.put(0, b"to myself");
    b.post_receive(&[pointer(64, key, memory.at() + 128)]);
    a.post(&mut host, SEND, SIGNALLED, &[pointer(9, key, memory.at())]);
    let mut wire = super::wire::Wire::new();
    for _ in 0..6 {
        host.nic.work(1, &mut wire, 64);
        while let Some(packet) = wire.next() {
            host.nic.receive(packet, &mut wire);
        }
    }
    assert_eq!(memory.get(128, 9), b"to myself");
    let qpns: Vec<_> = cq.all().iter().map(|cqe| (cqe.opcode, cqe.qpn)).collect();
    assert_eq!(qpns, [(2, b.qpn.0), (0, a.qpn.0)]);
}

#[test]
fn a_write_needs_no_receive_and_a_write_with_immediate_takes_one() {
    let mut world = World::new();
    let sent = world.a.fill(0, 3000, 2);
    let to = world.b.remote(512);
    let from = world.a.segment(0, 3000);
    world.a.post(WRITE, SIGNALLED, &[to.clone(), from.clone()]);
    world.run();
    assert_eq!(world.b.memory.get(512, 3000), sent);
    assert!(world.b.cq.poll().is_none());
    assert_eq!(world.a.cq.poll().unwrap().wqe_opcode, WRITE);
    world.b.qp.post_receive(&[]);
    world.a.post(WRITE_IMM, SIGNALLED | SOLICITED, &[to, from]);
    world.run();
    let received = world.b.cq.poll().unwrap();
    assert_eq!(
        (received.opcode, received.bytes, received.solicited),
        (1, 3000, true)
    );
    assert_eq!(received.immediate, [0xca, 0xfe, 0xba, 0xbe]);
    assert_eq!(world.a.cq.poll().unwrap().wqe_opcode, WRITE_IMM);
}

#[test]
fn a_read_of_many_packets_is_scattered_over_its_segments() {
    let mut world = World::new();
    let there = world.b.fill(1000, 4500, 3);
    let segments = [
        world.b.remote(1000),
        world.a.segment(0, 1500),
        world.a.segment(6000, 3000),
    ];
    world.a.post(READ, SIGNALLED, &segments);
    world.run();
    let done = world.a.cq.poll().unwrap();
    assert_eq!((done.wqe_opcode, done.bytes), (READ, 4500));
    assert_eq!(world.a.memory.get(0, 1500), there[..1500]);
    assert_eq!(world.a.memory.get(6000, 3000), there[1500..]);
}

#[test]
fn messages_of_no_bytes_complete_and_look_at_no_key() {
    let mut world = World::new();
    world.b.qp.post_receive(&[]);
    world.b.qp.post_receive(&[]);
    world.a.post(SEND, SIGNALLED, &[]);
    world.a.post(WRITE, SIGNALLED, &[remote(0, 0)]);
    world.a.post(READ, SIGNALLED, &[remote(0, 0)]);
    world.a.post(WRITE_IMM, SIGNALLED, &[remote(0, 0)]);
    world.a.post(NOP, SIGNALLED, &[]);
    world.run();
    let received: Vec<_> = world
        .b
        .cq
        .all()
        .iter()
        .map(|cqe| (cqe.opcode, cqe.bytes))
        .collect();
    assert_eq!(received, [(2, 0), (1, 0)]);
    let done: Vec<_> = world.a.cq.all().iter().map(|cqe| cqe.wqe_opcode).collect();
    assert_eq!(done, [SEND, WRITE, READ, WRITE_IMM, NOP]);
    world.assert_no_violations();
}

#[test]
fn wqes_and_inline_data_go_around_the_ring_end() {
    let mut world = World::new();
    let data: Vec<u8> = (0..150).collect();
    for lap in 0..60 {
        let receive = world.b.segment(0, 200);
        world.b.qp.post_receive(&[receive]);
        // Three blocks each in a ring of 64: every offset at the end occurs.
        let counter = world.a.post(SEND, SIGNALLED, &[inline(&data)]);
        world.run();
        assert_eq!(world.b.memory.get(0, 150), data, "lap {lap}");
        assert_eq!(outcome(&world.a.cq.all()), [(OK, counter)]);
        assert_eq!(world.b.cq.all().len(), 1);
    }
    world.assert_no_violations();
}

#[test]
fn pointers_and_inline_data_mix_in_one_wqe() {
    let mut world = World::new();
    let sent = world.a.fill(0, 20, 9);
    let segments = [
        inline(b"head"),
        world.a.segment(0, 20),
        inline(b"and the tail of it"),
    ];
    let receive = world.b.segment(0, 100);
    world.b.qp.post_receive(&[receive]);
    world.a.post(SEND, SIGNALLED, &segments);
    world.run();
    let expected = [b"head".to_vec(), sent, b"and the tail of it".to_vec()].concat();
    assert_eq!(world.b.memory.get(0, expected.len()), expected);
}

#[test]
fn counters_and_sequence_numbers_wrap_without_a_trace() {
    // 70,000 WQEs: the 16-bit counters wrap; PSNs wrap with the first ones.
    let mut world = World::new();
    for n in 0..70_000_u32 {
        let last = n % 16 == 15;
        world.a.qp.write(
            WRITE,
            if last { SIGNALLED } else { 0 },
            &[world.b.remote(0), inline(&n.to_be_bytes())],
        );
        if last {
            world.a.qp.ring(&mut world.a.host);
            world.run();
            world.wire.sent.clear();
            assert_eq!(world.a.cq.all().len(), 1);
            assert_eq!(world.b.memory.be32(0), n);
        }
    }
    world.assert_no_violations();
}

#[test]
fn unsignalled_requests_complete_in_silence() {
    let mut world = World::new();
    for flags in [0, 0, SIGNALLED, 0] {
        let segments = [world.b.remote(0), inline(b"x")];
        world.a.post(WRITE, flags, &segments);
    }
    world.run();
    assert_eq!(outcome(&world.a.cq.all()), [(OK, 2)]);
}

#[test]
fn completions_keep_the_order_of_posting_across_operations() {
    let mut world = World::new();
    let mut expected = Vec::new();
    for n in 0..10 {
        let receive = world.b.segment(0, 64);
        world.b.qp.post_receive(&[receive]);
        let read = [world.b.remote(0), world.a.segment(0, 3000)];
        expected.push(world.a.post(READ, SIGNALLED, &read));
        expected.push(world.a.post(SEND, SIGNALLED, &[inline(&[n; 8])]));
        expected.push(world.a.post(NOP, SIGNALLED, &[]));
    }
    world.run();
    let order: Vec<_> = world.a.cq.all().iter().map(|cqe| cqe.counter).collect();
    assert_eq!(order, expected);
}

#[test]
fn no_more_reads_are_outstanding_than_the_peer_allows() {
    let mut world = World::with(QpAttr {
        max_rd_atomic: 2,
        ..attributes()
    });
    for _ in 0..8 {
        let read = [world.b.remote(0), world.a.segment(0, 100)];
        world.a.post(READ, SIGNALLED, &read);
    }
    world.a.host.nic.work(1, &mut world.wire, 64);
    assert_eq!(world.wire.packets.len(), 2);
    world.run();
    assert_eq!(world.a.cq.all().len(), 8);
}

#[test]
fn a_fenced_request_waits_for_the_reads_before_it() {
    let mut world = World::new();
    let read = [world.b.remote(0), world.a.segment(0, 100)];
    let write = [world.b.remote(0), world.a.segment(0, 100)];
    world.b.fill(0, 100, 7);
    world.a.post(READ, 0, &read);
    world.a.post(WRITE, SIGNALLED | FENCE, &write);
    world.a.host.nic.work(1, &mut world.wire, 64);
    assert_eq!(world.wire.packets.len(), 1, "the write stays behind");
    world.run();
    assert_eq!(world.a.cq.all().len(), 1);
}

#[test]
fn acknowledges_are_coalesced() {
    let mut world = World::new();
    for _ in 0..20 {
        world
            .a
            .qp
            .write(WRITE, 0, &[world.b.remote(0), inline(b"x")]);
    }
    world.a.qp.ring(&mut world.a.host);
    world.run();
    let answers =
        world.wire.sent.iter().filter(|packet| {
            packet.header.operation == crate::fabric::packet::Operation::Acknowledge
        });
    assert_eq!(answers.count(), 1);
}

#[test]
fn a_full_fabric_delays_and_loses_nothing() {
    let mut world = World::new();
    world.wire.room = 3;
    let sent = world.a.fill(0, 30_000, 5);
    let segments = [world.b.remote(0), world.a.segment(0, 30_000)];
    world.a.post(WRITE, SIGNALLED, &segments);
    world.run();
    assert_eq!(world.b.memory.get(0, 30_000), sent);
    assert_eq!(world.a.cq.all().len(), 1);
}

#[test]
fn the_first_packet_in_rtr_is_an_event_and_later_ones_are_not() {
    let (mut a, mut b) = (end(Host::new(1), |_| {}), end(Host::new(2), |_| {}));
    bring_up(&mut a.host.nic, a.qp.qpn, b.qp.qpn, attributes());
    let attr = QpAttr {
        dest_qpn: a.qp.qpn.0,
        ..attributes()
    };
    for (mask, state) in [(INIT_MASK, 1), (RTR_MASK, 2)] {
        b.host
            .nic
            .modify_qp(
                b.qp.qpn,
                &QpAttr {
                    mask,
                    state,
                    ..attr
                },
            )
            .unwrap();
    }
    let mut world = World {
        a,
        b,
        wire: super::wire::Wire::new(),
        now: 1,
    };
    for _ in 0..2 {
        let segments = [world.b.remote(0), inline(b"x")];
        world.a.post(WRITE, 0, &segments);
        world.run();
    }
    let established = Event::Asynchronous(AsyncEvent::CommEst, AsyncObject::Qp(0xa0));
    assert_eq!(world.b.host.events.take(), [established]);
}

#[test]
fn a_drained_send_queue_says_so_and_goes_on_in_rts() {
    let mut world = World::new();
    let segments = [world.b.remote(0), inline(b"x")];
    world.a.post(WRITE, SIGNALLED, &segments);
    world.a.host.nic.work(1, &mut world.wire, 64);
    let (nic, qpn) = (&mut world.a.host.nic, world.a.qp.qpn);
    let drain = QpAttr {
        mask: 1 | 1 << 2,
        state: 4,
        ..QpAttr::default()
    };
    nic.modify_qp(qpn, &drain).unwrap();
    assert_eq!(world.a.host.events.take(), []);
    world.run();
    let drained = Event::Asynchronous(AsyncEvent::SqDrained, AsyncObject::Qp(0xa0));
    assert_eq!(world.a.host.events.take(), [drained]);
    world.a.post(WRITE, SIGNALLED, &segments);
    world.run();
    assert_eq!(world.a.cq.all().len(), 1, "in SQD nothing begins");
    set_state(&mut world.a.host.nic, qpn, 3);
    world.run();
    assert_eq!(world.a.cq.all().len(), 1);
}

#[test]
fn one_doorbell_may_start_more_than_the_nic_holds_at_a_time() {
    let a = end(Host::new(1), |spec| spec.sq_wqebb_count = 8192);
    let mut world = World::of(a, end(Host::new(2), |_| {}), attributes());
    for n in 0..8000_u32 {
        let flags = if n == 7999 { SIGNALLED } else { 0 };
        let at = world.b.remote(4 * n as usize);
        world
            .a
            .qp
            .write(WRITE, flags, &[at, inline(&n.to_be_bytes())]);
    }
    world.a.qp.ring(&mut world.a.host);
    world.run();
    assert_eq!(outcome(&world.a.cq.all()), [(OK, 7999)]);
    assert!((0..8000).all(|n| world.b.memory.be32(4 * n) == n as u32));
}

#[test]
fn a_read_longer_than_the_window_and_what_follows_it_complete() {
    const LONG: usize = 1 << 20;
    let mut world = World::with(QpAttr {
        path_mtu: 1,
        ..attributes()
    });
    let (mut there, here) = (Buffer::new(LONG), Buffer::new(LONG));
    let data: Vec<u8> = (0..LONG).map(|n| (n % 251) as u8).collect();
    there.put(0, &data);
    let rkey = world.b.host.key(&there, LONG as u64, ALL_ACCESS);
    let lkey = world.a.host.key(&here, LONG as u64, ALL_ACCESS);
    let read = [
        remote(there.at(), rkey),
        pointer(LONG as u32, lkey, here.at()),
    ];
    world.a.post(READ, SIGNALLED, &read);
    let write = [world.b.remote(0), inline(b"after")];
    world.a.post(WRITE, SIGNALLED, &write);
    world.a.post(READ, SIGNALLED, &read);
    world.run();
    assert_eq!(outcome(&world.a.cq.all()), [(OK, 0), (OK, 1), (OK, 2)]);
    assert_eq!(here.get(0, LONG), data);
    assert_eq!(world.b.memory.get(0, 5), b"after");
}
