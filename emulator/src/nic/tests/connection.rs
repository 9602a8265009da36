//! The operations of a reliable connection without errors.

use super::fixtures::*;
use crate::spec::*;

#[test]
fn a_send_of_many_packets_arrives_complete_and_generates_cqes_on_both_sides() {
    let mut pair = Pair::new();
    let sent = pair.a.fill(0, 5000, 1);
    let receive = [
        pair.b.data_segment(100, 1000),
        pair.b.data_segment(8000, 6000),
    ];
    pair.b.qp.post_receive(&receive);
    let segments = [
        pair.a.data_segment(0, 2000),
        pair.a.data_segment(2000, 3000),
    ];
    let counter = pair.a.post(SEND_IMM, SIGNALLED, &segments);
    pair.run_until_idle();
    let received = pair.b.cq.poll().unwrap();
    assert_eq!(
        (received.opcode, received.bytes, received.counter),
        (3, 5000, 0)
    );
    assert_eq!(received.immediate, [0xca, 0xfe, 0xba, 0xbe]);
    assert_eq!((received.qpn, received.resource), (pair.b.qp.qpn.0, 0x77));
    assert_eq!(pair.b.memory.get(100, 1000), sent[..1000]);
    assert_eq!(pair.b.memory.get(8000, 4000), sent[1000..]);
    let done = pair.a.cq.poll().unwrap();
    assert_eq!(
        (done.opcode, done.wqe_opcode, done.counter),
        (0, SEND_IMM, counter)
    );
    pair.assert_no_violations();
}

#[test]
fn two_qps_of_one_nic_can_be_connected() {
    let mut host = Host::new(1);
    let mut cq = host.create_cq(64, 64);
    let spec = host.qp_spec(cq.cqn);
    let (mut a, mut b) = (host.create_qp(spec), host.create_qp(spec));
    modify_to_rts(&mut host.nic, a.qpn, b.qpn, attributes());
    modify_to_rts(&mut host.nic, b.qpn, a.qpn, attributes());
    let mut memory = Buffer::new(256);
    let key = host.register_buffer(&memory, 256, ALL_ACCESS);
    memory.put(0, b"to myself");
    b.post_receive(&[data_segment(64, key, memory.at() + 128)]);
    a.post(
        &mut host,
        SEND,
        SIGNALLED,
        &[data_segment(9, key, memory.at())],
    );
    let mut wire = Wire::new();
    for _ in 0..6 {
        host.nic.work(1, &mut wire, 64);
        while let Some(packet) = wire.next() {
            host.nic.receive(packet);
        }
    }
    assert_eq!(memory.get(128, 9), b"to myself");
    let qpns: Vec<_> = cq
        .poll_all()
        .iter()
        .map(|cqe| (cqe.opcode, cqe.qpn))
        .collect();
    assert_eq!(qpns, [(2, b.qpn.0), (0, a.qpn.0)]);
}

#[test]
fn a_write_needs_no_receive_and_a_write_with_immediate_consumes_one() {
    let mut pair = Pair::new();
    let sent = pair.a.fill(0, 3000, 2);
    let to = pair.b.raddr_segment(512);
    let from = pair.a.data_segment(0, 3000);
    pair.a.post(WRITE, SIGNALLED, &[to.clone(), from.clone()]);
    pair.run_until_idle();
    assert_eq!(pair.b.memory.get(512, 3000), sent);
    assert!(pair.b.cq.poll().is_none());
    assert_eq!(pair.a.cq.poll().unwrap().wqe_opcode, WRITE);
    pair.b.qp.post_receive(&[]);
    pair.a.post(WRITE_IMM, SIGNALLED | SOLICITED, &[to, from]);
    pair.run_until_idle();
    let received = pair.b.cq.poll().unwrap();
    assert_eq!(
        (received.opcode, received.bytes, received.solicited),
        (1, 3000, true)
    );
    assert_eq!(received.immediate, [0xca, 0xfe, 0xba, 0xbe]);
    assert_eq!(pair.a.cq.poll().unwrap().wqe_opcode, WRITE_IMM);
}

#[test]
fn a_read_of_many_packets_is_scattered_over_its_segments() {
    let mut pair = Pair::new();
    let remote_data = pair.b.fill(1000, 4500, 3);
    let segments = [
        pair.b.raddr_segment(1000),
        pair.a.data_segment(0, 1500),
        pair.a.data_segment(6000, 3000),
    ];
    pair.a.post(READ, SIGNALLED, &segments);
    pair.run_until_idle();
    let done = pair.a.cq.poll().unwrap();
    assert_eq!((done.wqe_opcode, done.bytes), (READ, 4500));
    assert_eq!(pair.a.memory.get(0, 1500), remote_data[..1500]);
    assert_eq!(pair.a.memory.get(6000, 3000), remote_data[1500..]);
}

#[test]
fn messages_of_length_0_complete_without_a_key_check() {
    let mut pair = Pair::new();
    pair.b.qp.post_receive(&[]);
    pair.b.qp.post_receive(&[]);
    pair.a.post(SEND, SIGNALLED, &[]);
    pair.a.post(WRITE, SIGNALLED, &[raddr_segment(0, 0)]);
    pair.a.post(READ, SIGNALLED, &[raddr_segment(0, 0)]);
    pair.a.post(WRITE_IMM, SIGNALLED, &[raddr_segment(0, 0)]);
    pair.a.post(NOP, SIGNALLED, &[]);
    pair.run_until_idle();
    let received: Vec<_> = pair
        .b
        .cq
        .poll_all()
        .iter()
        .map(|cqe| (cqe.opcode, cqe.bytes))
        .collect();
    assert_eq!(received, [(2, 0), (1, 0)]);
    let done: Vec<_> = pair
        .a
        .cq
        .poll_all()
        .iter()
        .map(|cqe| cqe.wqe_opcode)
        .collect();
    assert_eq!(done, [SEND, WRITE, READ, WRITE_IMM, NOP]);
    pair.assert_no_violations();
}

#[test]
fn wqes_and_inline_data_wrap_around_the_end_of_the_ring() {
    let mut pair = Pair::new();
    let data: Vec<u8> = (0..150).collect();
    for lap in 0..60 {
        let receive = pair.b.data_segment(0, 200);
        pair.b.qp.post_receive(&[receive]);
        // Three WQEBBs each in a ring of 64: every offset at the end of the ring occurs.
        let counter = pair.a.post(SEND, SIGNALLED, &[inline_segment(&data)]);
        pair.run_until_idle();
        assert_eq!(pair.b.memory.get(0, 150), data, "lap {lap}");
        assert_eq!(statuses(&pair.a.cq.poll_all()), [(OK, counter)]);
        assert_eq!(pair.b.cq.poll_all().len(), 1);
    }
    pair.assert_no_violations();
}

#[test]
fn one_wqe_may_contain_data_segments_and_inline_segments() {
    let mut pair = Pair::new();
    let sent = pair.a.fill(0, 20, 9);
    let segments = [
        inline_segment(b"head"),
        pair.a.data_segment(0, 20),
        inline_segment(b"and the tail of it"),
    ];
    let receive = pair.b.data_segment(0, 100);
    pair.b.qp.post_receive(&[receive]);
    pair.a.post(SEND, SIGNALLED, &segments);
    pair.run_until_idle();
    let expected = [b"head".to_vec(), sent, b"and the tail of it".to_vec()].concat();
    assert_eq!(pair.b.memory.get(0, expected.len()), expected);
}

#[test]
fn wqe_counters_and_psns_wrap() {
    // 70,000 WQEs: the 16-bit counters wrap; PSNs wrap with the first ones.
    let mut pair = Pair::new();
    for n in 0..70_000_u32 {
        let last = n % 16 == 15;
        pair.a.qp.write_wqe(
            WRITE,
            if last { SIGNALLED } else { 0 },
            &[pair.b.raddr_segment(0), inline_segment(&n.to_be_bytes())],
        );
        if last {
            pair.a.qp.ring_doorbell(&mut pair.a.host);
            pair.run_until_idle();
            pair.wire.sent.clear();
            assert_eq!(pair.a.cq.poll_all().len(), 1);
            assert_eq!(pair.b.memory.be32(0), n);
        }
    }
    pair.assert_no_violations();
}

#[test]
fn unsignalled_requests_generate_no_cqe() {
    let mut pair = Pair::new();
    for flags in [0, 0, SIGNALLED, 0] {
        let segments = [pair.b.raddr_segment(0), inline_segment(b"x")];
        pair.a.post(WRITE, flags, &segments);
    }
    pair.run_until_idle();
    assert_eq!(statuses(&pair.a.cq.poll_all()), [(OK, 2)]);
}

#[test]
fn completions_keep_the_order_of_posting_across_operations() {
    let mut pair = Pair::new();
    let mut expected = Vec::new();
    for n in 0..10 {
        let receive = pair.b.data_segment(0, 64);
        pair.b.qp.post_receive(&[receive]);
        let read = [pair.b.raddr_segment(0), pair.a.data_segment(0, 3000)];
        expected.push(pair.a.post(READ, SIGNALLED, &read));
        expected.push(pair.a.post(SEND, SIGNALLED, &[inline_segment(&[n; 8])]));
        expected.push(pair.a.post(NOP, SIGNALLED, &[]));
    }
    pair.run_until_idle();
    let order: Vec<_> = pair.a.cq.poll_all().iter().map(|cqe| cqe.counter).collect();
    assert_eq!(order, expected);
}

#[test]
fn no_more_reads_are_outstanding_than_max_rd_atomic() {
    let mut pair = Pair::with_attributes(QpAttr {
        max_rd_atomic: 2,
        ..attributes()
    });
    for _ in 0..8 {
        let read = [pair.b.raddr_segment(0), pair.a.data_segment(0, 100)];
        pair.a.post(READ, SIGNALLED, &read);
    }
    pair.a.host.nic.work(1, &mut pair.wire, 64);
    assert_eq!(pair.wire.packets.len(), 2);
    pair.run_until_idle();
    assert_eq!(pair.a.cq.poll_all().len(), 8);
}

#[test]
fn a_fenced_request_waits_for_the_reads_before_it() {
    let mut pair = Pair::new();
    let read = [pair.b.raddr_segment(0), pair.a.data_segment(0, 100)];
    let write = [pair.b.raddr_segment(0), pair.a.data_segment(0, 100)];
    pair.b.fill(0, 100, 7);
    pair.a.post(READ, 0, &read);
    pair.a.post(WRITE, SIGNALLED | FENCE, &write);
    pair.a.host.nic.work(1, &mut pair.wire, 64);
    assert_eq!(pair.wire.packets.len(), 1, "the write waits");
    pair.run_until_idle();
    assert_eq!(pair.a.cq.poll_all().len(), 1);
}

#[test]
fn acks_are_coalesced() {
    let mut pair = Pair::new();
    for _ in 0..20 {
        pair.a
            .qp
            .write_wqe(WRITE, 0, &[pair.b.raddr_segment(0), inline_segment(b"x")]);
    }
    pair.a.qp.ring_doorbell(&mut pair.a.host);
    pair.run_until_idle();
    let acks =
        pair.wire.sent.iter().filter(|packet| {
            packet.header.operation == crate::fabric::packet::Operation::Acknowledge
        });
    assert_eq!(acks.count(), 1);
}

#[test]
fn a_full_fabric_delays_packets_and_loses_none() {
    let mut pair = Pair::new();
    pair.wire.capacity = 3;
    let sent = pair.a.fill(0, 30_000, 5);
    let segments = [pair.b.raddr_segment(0), pair.a.data_segment(0, 30_000)];
    pair.a.post(WRITE, SIGNALLED, &segments);
    pair.run_until_idle();
    assert_eq!(pair.b.memory.get(0, 30_000), sent);
    assert_eq!(pair.a.cq.poll_all().len(), 1);
}

#[test]
fn only_the_first_packet_in_rtr_raises_comm_est() {
    let (mut a, mut b) = (peer(Host::new(1), |_| {}), peer(Host::new(2), |_| {}));
    modify_to_rts(&mut a.host.nic, a.qp.qpn, b.qp.qpn, attributes());
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
    let mut pair = Pair {
        a,
        b,
        wire: Wire::new(),
        now: 1,
    };
    for _ in 0..2 {
        let segments = [pair.b.raddr_segment(0), inline_segment(b"x")];
        pair.a.post(WRITE, 0, &segments);
        pair.run_until_idle();
    }
    let established = Event::Asynchronous(AsyncEvent::CommEst, AsyncObject::Qp(0xa0));
    assert_eq!(pair.b.host.events.take(), [established]);
}

#[test]
fn a_drained_send_queue_raises_sq_drained_and_continues_in_rts() {
    let mut pair = Pair::new();
    let segments = [pair.b.raddr_segment(0), inline_segment(b"x")];
    pair.a.post(WRITE, SIGNALLED, &segments);
    pair.a.host.nic.work(1, &mut pair.wire, 64);
    let (nic, qpn) = (&mut pair.a.host.nic, pair.a.qp.qpn);
    let drain = QpAttr {
        mask: 1 | 1 << 2,
        state: 4,
        ..QpAttr::default()
    };
    nic.modify_qp(qpn, &drain).unwrap();
    assert_eq!(pair.a.host.events.take(), []);
    pair.run_until_idle();
    let drained = Event::Asynchronous(AsyncEvent::SqDrained, AsyncObject::Qp(0xa0));
    assert_eq!(pair.a.host.events.take(), [drained]);
    pair.a.post(WRITE, SIGNALLED, &segments);
    pair.run_until_idle();
    assert_eq!(pair.a.cq.poll_all().len(), 1, "no WQE is started in SQD");
    set_state(&mut pair.a.host.nic, qpn, 3);
    pair.run_until_idle();
    assert_eq!(pair.a.cq.poll_all().len(), 1);
}

#[test]
fn one_doorbell_may_start_more_wqes_than_the_nic_processes_at_a_time() {
    let a = peer(Host::new(1), |spec| spec.sq_wqebb_count = 8192);
    let mut pair = Pair::connect(a, peer(Host::new(2), |_| {}), attributes());
    for n in 0..8000_u32 {
        let flags = if n == 7999 { SIGNALLED } else { 0 };
        let at = pair.b.raddr_segment(4 * n as usize);
        pair.a
            .qp
            .write_wqe(WRITE, flags, &[at, inline_segment(&n.to_be_bytes())]);
    }
    pair.a.qp.ring_doorbell(&mut pair.a.host);
    pair.run_until_idle();
    assert_eq!(statuses(&pair.a.cq.poll_all()), [(OK, 7999)]);
    assert!((0..8000).all(|n| pair.b.memory.be32(4 * n) == n as u32));
}

#[test]
fn a_read_longer_than_the_packet_window_and_its_successors_complete() {
    const LONG: usize = 1 << 20;
    let mut pair = Pair::with_attributes(QpAttr {
        path_mtu: 1,
        ..attributes()
    });
    let (mut remote_data, local_data) = (Buffer::new(LONG), Buffer::new(LONG));
    let data: Vec<u8> = (0..LONG).map(|n| (n % 251) as u8).collect();
    remote_data.put(0, &data);
    let rkey = pair
        .b
        .host
        .register_buffer(&remote_data, LONG as u64, ALL_ACCESS);
    let lkey = pair
        .a
        .host
        .register_buffer(&local_data, LONG as u64, ALL_ACCESS);
    let read = [
        raddr_segment(remote_data.at(), rkey),
        data_segment(LONG as u32, lkey, local_data.at()),
    ];
    pair.a.post(READ, SIGNALLED, &read);
    let write = [pair.b.raddr_segment(0), inline_segment(b"after")];
    pair.a.post(WRITE, SIGNALLED, &write);
    pair.a.post(READ, SIGNALLED, &read);
    pair.run_until_idle();
    assert_eq!(statuses(&pair.a.cq.poll_all()), [(OK, 0), (OK, 1), (OK, 2)]);
    assert_eq!(local_data.get(0, LONG), data);
    assert_eq!(pair.b.memory.get(0, 5), b"after");
}
