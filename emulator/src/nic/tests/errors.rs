//! Error completions: which syndrome, on which side, and what happens to the other
//! requests.

use super::fixtures::*;
use crate::spec::*;

const LOCAL_LENGTH: u8 = 0x01;
const LOCAL_QP_OPERATION: u8 = 0x02;
const LOCAL_PROTECTION: u8 = 0x04;
const FLUSHED: u8 = 0x05;
const REMOTE_INVALID: u8 = 0x12;
const REMOTE_ACCESS: u8 = 0x13;
const REMOTE_OPERATION: u8 = 0x14;
const ERR: u8 = 6;

fn check_failure_at_a(mut pair: Pair, syndrome: u8, opcode: u8, segments: &[Vec<u8>]) -> Pair {
    // Both requests are unsignalled: errors generate CQEs nevertheless.
    let counter = pair.a.post(opcode, 0, segments);
    let next = pair.a.post(NOP, 0, &[]);
    pair.run_until_idle();
    let completions = pair.a.cq.poll_all();
    assert_eq!(
        statuses(&completions),
        [(syndrome, counter), (FLUSHED, next)]
    );
    assert!(
        completions
            .iter()
            .all(|cqe| cqe.opcode == 13 && cqe.resource == 0x77)
    );
    assert_eq!(completions[1].raw[54], 0xf9);
    assert_eq!(pair.a.state(), ERR);
    pair
}

fn events_of_b(pair: &Pair) -> Vec<AsyncEvent> {
    let events = pair.b.host.events.take();
    let kind = |event| match event {
        Event::Asynchronous(event, _) => Some(event),
        Event::Completion(_) => None,
    };
    events.into_iter().filter_map(kind).collect()
}

#[test]
fn remote_writes_and_reads_without_permission_are_access_errors() {
    let read_only = Access::LOCAL_WRITE | Access::REMOTE_READ;
    type InvalidTarget = fn(&mut Pair) -> Vec<u8>;
    let targets: [InvalidTarget; 4] = [
        |pair| raddr_segment(pair.b.memory.at(), pair.b.key ^ 0x10),
        |pair| pair.b.raddr_segment(MEMORY_SIZE - 99),
        |pair| raddr_segment(pair.b.memory.at() - 1, pair.b.key),
        |pair| {
            let other = pair.b.host.nic.alloc_pd(pair.b.host.context).unwrap();
            let own = std::mem::replace(&mut pair.b.host.pd, other);
            let key = pair
                .b
                .host
                .register_buffer(&pair.b.memory, MEMORY_SIZE as u64, ALL_ACCESS);
            pair.b.host.pd = own;
            raddr_segment(pair.b.memory.at(), key)
        },
    ];
    for wrong in targets {
        for opcode in [WRITE, WRITE_IMM, READ] {
            let mut pair = Pair::new();
            let segments = [wrong(&mut pair), pair.a.data_segment(0, 100)];
            let pair = check_failure_at_a(pair, REMOTE_ACCESS, opcode, &segments);
            assert_eq!(pair.b.state(), ERR);
            assert_eq!(events_of_b(&pair), [AsyncEvent::QpAccessErr]);
        }
    }
    let mut pair = Pair::new();
    let key = pair.b.host.register_buffer(&pair.b.memory, 4096, read_only);
    let to = raddr_segment(pair.b.memory.at(), key);
    let segments = [to, pair.a.data_segment(0, 100)];
    check_failure_at_a(pair, REMOTE_ACCESS, WRITE, &segments);
}

#[test]
fn an_access_that_the_flags_of_the_qp_do_not_permit_is_an_invalid_request() {
    for (opcode, missing) in [(WRITE, Access::REMOTE_WRITE), (READ, Access::REMOTE_READ)] {
        let attr = QpAttr {
            access: ALL_ACCESS.difference(missing),
            ..attributes()
        };
        let pair = Pair::with_attributes(attr);
        let segments = [pair.b.raddr_segment(0), pair.a.data_segment(0, 100)];
        let pair = check_failure_at_a(pair, REMOTE_INVALID, opcode, &segments);
        assert_eq!(events_of_b(&pair), [AsyncEvent::QpReqErr]);
    }
    let pair = Pair::with_attributes(QpAttr {
        max_dest_rd_atomic: 0,
        ..attributes()
    });
    let segments = [pair.b.raddr_segment(0), pair.a.data_segment(0, 100)];
    check_failure_at_a(pair, REMOTE_INVALID, READ, &segments);
}

#[test]
fn more_outstanding_reads_than_the_responder_supports_are_an_invalid_request() {
    let pair = Pair::with_attributes(QpAttr {
        max_rd_atomic: 4,
        max_dest_rd_atomic: 1,
        ..attributes()
    });
    let mut pair = pair;
    let segments = [pair.b.raddr_segment(0), pair.a.data_segment(0, 100)];
    for _ in 0..4 {
        pair.a.post(READ, SIGNALLED, &segments);
    }
    pair.run_until_idle();
    let outcome = statuses(&pair.a.cq.poll_all());
    assert!(
        outcome
            .iter()
            .any(|(syndrome, _)| *syndrome == REMOTE_INVALID),
        "{outcome:?}"
    );
    assert_eq!(events_of_b(&pair), [AsyncEvent::QpReqErr]);
}

#[test]
fn local_segments_without_permission_are_protection_errors() {
    let pair = Pair::new();
    let segments = [
        pair.b.raddr_segment(0),
        data_segment(100, pair.a.key ^ 0x1, pair.a.memory.at()),
    ];
    check_failure_at_a(pair, LOCAL_PROTECTION, WRITE, &segments);

    let pair = Pair::new();
    let segments = [pair.a.data_segment(MEMORY_SIZE - 10, 11)];
    check_failure_at_a(pair, LOCAL_PROTECTION, SEND, &segments);

    let mut pair = Pair::new();
    let key = pair
        .a
        .host
        .register_buffer(&pair.a.memory, 4096, Access::empty());
    let segments = [
        pair.b.raddr_segment(0),
        data_segment(100, key, pair.a.memory.at()),
    ];
    check_failure_at_a(pair, LOCAL_PROTECTION, READ, &segments);

    let mut pair = Pair::new();
    let spec = MrSpec {
        context: pair.a.host.context,
        pd: pair.a.host.nic.alloc_pd(pair.a.host.context).unwrap(),
        start: pair.a.memory.at(),
        length: 100,
        hca_va: pair.a.memory.at(),
        access: Access::LOCAL_WRITE,
    };
    let foreign = pair.a.host.nic.reg_mr(&spec).unwrap();
    let segments = [data_segment(100, foreign.lkey, pair.a.memory.at())];
    check_failure_at_a(pair, LOCAL_PROTECTION, SEND, &segments);
}

#[test]
fn a_deregistered_key_is_invalid() {
    let mut pair = Pair::new();
    let spec = MrSpec {
        context: pair.b.host.context,
        pd: pair.b.host.pd,
        start: pair.b.memory.at(),
        length: 100,
        hca_va: pair.b.memory.at(),
        access: ALL_ACCESS,
    };
    let keys = pair.b.host.nic.reg_mr(&spec).unwrap();
    let segments = [
        raddr_segment(spec.start, keys.rkey),
        pair.a.data_segment(0, 100),
    ];
    pair.a.post(WRITE, SIGNALLED, &segments);
    pair.run_until_idle();
    assert_eq!(statuses(&pair.a.cq.poll_all()), [(OK, 0)]);
    pair.b.host.nic.dereg_mr(spec.context, keys.handle).unwrap();
    check_failure_at_a(pair, REMOTE_ACCESS, WRITE, &segments);
}

#[test]
fn a_reregistered_region_has_its_new_range_and_permissions_under_the_same_key() {
    let mut pair = Pair::new();
    let host = &mut pair.b.host;
    let spec = MrSpec {
        context: host.context,
        pd: host.pd,
        start: pair.b.memory.at(),
        length: 100,
        hca_va: pair.b.memory.at(),
        access: ALL_ACCESS,
    };
    let keys = host.nic.reg_mr(&spec).unwrap();
    let other_pd = host.nic.alloc_pd(host.context).unwrap();
    let moved = MrSpec {
        start: spec.start + 50,
        hca_va: 0x7000_0000,
        pd: other_pd,
        ..spec
    };
    let invalid = Err(crate::spec::Errno(libc::EINVAL));
    assert_eq!(host.nic.rereg_mr(keys.handle + 77, &moved, true), invalid);
    let unmapped = MrSpec {
        start: 0x1000,
        ..moved
    };
    let fault = Err(crate::spec::Errno(libc::EFAULT));
    assert_eq!(host.nic.rereg_mr(keys.handle, &unmapped, true), fault);

    // After a refused command the region is unchanged.
    let segments = [
        raddr_segment(spec.start, keys.rkey),
        pair.a.data_segment(0, 100),
    ];
    pair.a.post(WRITE, SIGNALLED, &segments);
    pair.run_until_idle();
    assert_eq!(statuses(&pair.a.cq.poll_all()), [(OK, 0)]);

    let host = &mut pair.b.host;
    host.nic.rereg_mr(keys.handle, &moved, true).unwrap();
    let busy = Err(crate::spec::Errno(libc::EBUSY));
    assert_eq!(
        host.nic.dealloc_pd(other_pd),
        busy,
        "the region is in this protection domain now"
    );
    let back = MrSpec {
        pd: spec.pd,
        ..moved
    };
    host.nic.rereg_mr(keys.handle, &back, false).unwrap();
    assert_eq!(host.nic.dealloc_pd(other_pd), Ok(()));
    let moved_segments = [
        raddr_segment(0x7000_0000, keys.rkey),
        pair.a.data_segment(0, 50),
    ];
    pair.a.post(WRITE, SIGNALLED, &moved_segments);
    pair.run_until_idle();
    assert_eq!(statuses(&pair.a.cq.poll_all()), [(OK, 1)]);
    check_failure_at_a(pair, REMOTE_ACCESS, WRITE, &segments);
}

#[test]
fn a_message_longer_than_the_receive_fails_both_sides() {
    let mut pair = Pair::new();
    let receive = pair.b.data_segment(0, 2999);
    pair.b.qp.post_receive(std::slice::from_ref(&receive));
    pair.b.qp.post_receive(&[receive]);
    let segments = [pair.a.data_segment(0, 3000)];
    let mut pair = check_failure_at_a(pair, REMOTE_INVALID, SEND, &segments);
    let received = pair.b.cq.poll_all();
    assert_eq!(statuses(&received), [(LOCAL_LENGTH, 0), (FLUSHED, 1)]);
    assert!(received.iter().all(|cqe| cqe.opcode == 14));
    assert_eq!(pair.b.state(), ERR);
}

#[test]
fn a_receive_into_an_unregistered_buffer_fails_both_sides() {
    let mut pair = Pair::new();
    let bad = data_segment(100, pair.b.key ^ 0x100, pair.b.memory.at());
    pair.b.qp.post_receive(&[bad]);
    let segments = [pair.a.data_segment(0, 100)];
    let mut pair = check_failure_at_a(pair, REMOTE_OPERATION, SEND, &segments);
    assert_eq!(statuses(&pair.b.cq.poll_all()), [(LOCAL_PROTECTION, 0)]);
}

#[test]
fn a_segment_length_of_0_means_2_to_the_31() {
    let pair = Pair::new();
    let segments = [pair.a.data_segment(0, 0)];
    check_failure_at_a(pair, LOCAL_LENGTH, SEND, &segments);
    // As a receive segment it is longer than its region.
    let mut pair = Pair::new();
    let receive = pair.b.data_segment(MEMORY_SIZE - 50, 0);
    pair.b.qp.post_receive(&[receive]);
    let segments = [pair.a.data_segment(0, 60)];
    check_failure_at_a(pair, REMOTE_OPERATION, SEND, &segments);
}

#[test]
fn messages_above_the_maximum_size_are_length_errors() {
    let pair = Pair::new();
    let big = data_segment((1 << 30) + 1, pair.a.key, pair.a.memory.at());
    check_failure_at_a(pair, LOCAL_LENGTH, SEND, &[big]);
}

#[test]
fn malformed_wqes_are_operation_errors() {
    type Change = fn(&mut TestQp);
    let changes: [(&str, Change); 4] = [
        ("unknown opcode", |qp| qp.sq.put(3, &[0x7e])),
        ("another QP's number", |qp| qp.sq.put(4, &[9])),
        ("wrong index", |qp| qp.sq.put(2, &[5])),
        ("no segments", |qp| qp.sq.put(7, &[0])),
    ];
    for (case, change) in changes {
        let mut host = Host::with_options(crate::nic::NicOptions {
            view: DoorbellView::Register,
            ..Default::default()
        });
        let mut cq = host.create_cq(64, 64);
        let mut qp = host.create_qp(host.qp_spec(cq.cqn));
        modify_to_rts(&mut host.nic, qp.qpn, qp.qpn, attributes());
        qp.write_wqe(SEND, 0, &[]);
        change(&mut qp);
        qp.ring_doorbell(&mut host);
        host.nic.work(1, &mut Wire::new(), 64);
        assert_eq!(
            statuses(&cq.poll_all()),
            [(LOCAL_QP_OPERATION, 0)],
            "{case}"
        );
        assert_eq!(host.nic.violations().count(), 1, "{case}");
    }
}

#[test]
fn inline_data_longer_than_the_wqe_and_reads_into_inline_segments_are_operation_errors() {
    let mut long = inline_segment(&[1; 8]);
    long[3] = 200;
    check_failure_at_a(Pair::new(), LOCAL_QP_OPERATION, SEND, &[long]);
    let pair = Pair::new();
    let segments = [pair.b.raddr_segment(0), inline_segment(&[1; 8])];
    check_failure_at_a(pair, LOCAL_QP_OPERATION, READ, &segments);
}

#[test]
fn an_error_cqe_follows_the_cqes_of_earlier_requests() {
    let mut pair = Pair::new();
    let valid = [pair.b.raddr_segment(0), pair.a.data_segment(0, 5000)];
    let read = [pair.b.raddr_segment(0), pair.a.data_segment(0, 5000)];
    let bad = [pair.b.raddr_segment(0), data_segment(4, 0xbad, 0x10000)];
    pair.a.post(WRITE, SIGNALLED, &valid);
    pair.a.post(READ, SIGNALLED, &read);
    pair.a.post(WRITE, 0, &bad);
    pair.a.post(WRITE, 0, &valid);
    pair.run_until_idle();
    let expected = [(OK, 0), (OK, 1), (LOCAL_PROTECTION, 2), (FLUSHED, 3)];
    assert_eq!(statuses(&pair.a.cq.poll_all()), expected);
}

#[test]
fn a_transition_to_err_flushes_both_queues_in_order() {
    let mut pair = Pair::new();
    for n in 0..3 {
        let receive = pair.a.data_segment(n, 64);
        pair.a.qp.post_receive(&[receive]);
    }
    // One started and one not started; the second takes two WQEBBs.
    pair.a.post(SEND, SIGNALLED, &[inline_segment(b"x")]);
    pair.a.host.nic.work(1, &mut pair.wire, 64);
    pair.a.post(SEND, 0, &[inline_segment(&[0; 60])]);
    pair.a.post(NOP, 0, &[]);
    set_state(&mut pair.a.host.nic, pair.a.qp.qpn, ERR);
    let all = pair.a.cq.poll_all();
    let (sends, receives): (Vec<_>, Vec<_>) = all.into_iter().partition(|cqe| cqe.opcode == 13);
    assert_eq!(statuses(&sends), [(FLUSHED, 0), (FLUSHED, 1), (FLUSHED, 3)]);
    assert_eq!(
        statuses(&receives),
        [(FLUSHED, 0), (FLUSHED, 1), (FLUSHED, 2)]
    );
    // Requests posted later are flushed too.
    let counter = pair.a.post(NOP, 0, &[]);
    assert_eq!(statuses(&pair.a.cq.poll_all()), [(FLUSHED, counter)]);
    let receive = pair.a.data_segment(0, 64);
    pair.a.qp.post_receive(&[receive]);
    let progress = pair.a.host.nic.work(2, &mut pair.wire, 64);
    assert_eq!(statuses(&pair.a.cq.poll_all()), [(FLUSHED, 3)]);
    assert!(
        progress.next_deadline.is_some(),
        "the NIC polls the doorbell record again"
    );
}

#[test]
fn an_error_in_the_middle_of_a_message_flushes_the_receive_in_use() {
    let mut pair = Pair::new();
    let receive = pair.b.data_segment(0, 9000);
    pair.b.qp.post_receive(&[receive]);
    pair.wire.delivery_of = Box::new(|packet| {
        use crate::fabric::packet::PacketFlags;
        let last = packet.header.flags.contains(PacketFlags::LAST);
        if last {
            Delivery::Drop
        } else {
            Delivery::Deliver
        }
    });
    let segments = [pair.a.data_segment(0, 9000)];
    pair.a.post(SEND, 0, &segments);
    pair.run_until_idle();
    set_state(&mut pair.b.host.nic, pair.b.qp.qpn, ERR);
    assert_eq!(statuses(&pair.b.cq.poll_all()), [(FLUSHED, 0)]);
}

#[test]
fn a_qp_can_be_used_again_after_reset() {
    let mut pair = Pair::new();
    let segments = [pair.b.raddr_segment(0), data_segment(4, 0xbad, 0x10000)];
    pair.a.post(WRITE, 0, &segments);
    pair.run_until_idle();
    pair.a.cq.poll_all();
    for peer in [&mut pair.a, &mut pair.b] {
        set_state(&mut peer.host.nic, peer.qp.qpn, 0);
        (peer.qp.posted, peer.qp.received) = (0, 0);
        peer.qp.dbrec.put(0, &[0; 8]);
    }
    let (a, b) = (pair.a.qp.qpn, pair.b.qp.qpn);
    modify_to_rts(&mut pair.a.host.nic, a, b, attributes());
    modify_to_rts(&mut pair.b.host.nic, b, a, attributes());
    let receive = pair.b.data_segment(0, 64);
    pair.b.qp.post_receive(&[receive]);
    pair.a.post(SEND, SIGNALLED, &[inline_segment(b"again")]);
    pair.run_until_idle();
    assert_eq!(statuses(&pair.a.cq.poll_all()), [(OK, 0)]);
    assert_eq!(statuses(&pair.b.cq.poll_all()), [(OK, 0)]);
}

#[test]
fn vendor_syndromes_are_those_of_a_connectx() {
    fn data(pair: &Pair) -> Vec<u8> {
        pair.a.data_segment(0, 8)
    }
    type Prepare = dyn Fn(&mut Pair) -> (u8, Vec<Vec<u8>>);
    let vendor = |syndrome, prepare: &Prepare| {
        let mut pair = Pair::with_attributes(QpAttr {
            rnr_retry: 0,
            retry_count: 0,
            ..attributes()
        });
        let (opcode, segments) = prepare(&mut pair);
        pair.a.post(opcode, SIGNALLED, &segments);
        pair.advance(4096 << 16, 4096 << 14);
        let failed = pair.a.cq.poll().unwrap();
        assert_eq!(failed.syndrome, syndrome);
        failed.raw[54]
    };
    let refused = vendor(REMOTE_ACCESS, &|pair| {
        let target = raddr_segment(pair.b.memory.at(), pair.b.key ^ 0x10);
        (WRITE, vec![target, data(pair)])
    });
    let too_long = vendor(REMOTE_INVALID, &|pair| {
        let receive = pair.b.data_segment(0, 4);
        pair.b.qp.post_receive(&[receive]);
        (SEND, vec![data(pair)])
    });
    let no_key = vendor(LOCAL_PROTECTION, &|pair| {
        let own = data_segment(8, pair.a.key ^ 0x10, pair.a.memory.at());
        (SEND, vec![own])
    });
    let no_receive = vendor(0x16, &|pair| (SEND, vec![data(pair)]));
    let no_peer = vendor(0x15, &|pair| {
        set_state(&mut pair.b.host.nic, pair.b.qp.qpn, ERR);
        (SEND, vec![data(pair)])
    });
    let found = [refused, too_long, no_key, no_receive, no_peer];
    assert_eq!(found, [0x88, 0x8a, 0x51, 0x87, 0x81]);
}

#[test]
fn requests_between_qps_with_different_mtus_fail() {
    for (at_a, at_b) in [(5, 3), (3, 5)] {
        for opcode in [WRITE, READ, SEND] {
            let (mut a, mut b) = (peer(Host::new(1), |_| {}), peer(Host::new(2), |_| {}));
            let with_mtu = |path_mtu| QpAttr {
                path_mtu,
                ..attributes()
            };
            modify_to_rts(&mut a.host.nic, a.qp.qpn, b.qp.qpn, with_mtu(at_a));
            modify_to_rts(&mut b.host.nic, b.qp.qpn, a.qp.qpn, with_mtu(at_b));
            let mut pair = Pair {
                a,
                b,
                wire: Wire::new(),
                now: 1_000,
            };
            let receive = pair.b.data_segment(0, 16_384);
            pair.b.qp.post_receive(&[receive]);
            let mut segments = vec![pair.a.data_segment(0, 16_384)];
            if opcode != SEND {
                segments.insert(0, pair.b.raddr_segment(0));
            }
            pair.a.post(opcode, SIGNALLED, &segments);
            pair.run_until_idle();
            let syndrome = pair.a.cq.poll().unwrap().syndrome;
            let expected = if opcode == READ { 0x10 } else { REMOTE_INVALID };
            assert_eq!(syndrome, expected, "{at_a} {at_b} {opcode:#x}");
        }
    }
}
