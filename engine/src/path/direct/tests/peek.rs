//! Peeking reports what polling will, and consumes nothing.

use super::*;
use crate::path::direct::CqeKind;
use mlx5_rings::wire::WqeOpcode;

/// Returns CQEs of every kind for queue pair 7, with the kind that the fast path
/// decodes: the n-th entry is of the n-th request on its side.
fn kinds() -> [(Entry, CqeKind); 10] {
    let entry = |opcode, form, request| Entry {
        opcode,
        form,
        request,
        bytes: 5,
        imm: 9,
        ..done(7, 0)
    };
    [
        (entry(2, 0, 0), CqeKind::Recv),
        (entry(2, 2, 0), CqeKind::Recv),
        (entry(3, 0, 0), CqeKind::RecvImm),
        (entry(1, 0, 0), CqeKind::RecvWriteImm),
        (entry(2, 4, 0), CqeKind::RecvInCqe),
        (entry(3, 4, 0), CqeKind::Other),
        (entry(0, 0, 0x0a), CqeKind::Request),
        (entry(0, 0, 0x08), CqeKind::Request),
        (entry(0, 0, 0x10), CqeKind::Request),
        (
            Entry {
                syndrome: 5,
                ..entry(13, 0, 0x0a)
            },
            CqeKind::Other,
        ),
    ]
}

#[test]
fn a_cqe_is_consumed_on_the_fast_path_or_left_to_the_slow_path() {
    let target = Memory::new(64, 0);
    let (mut looked, mut polled) = (Cq::new(4, 64), Cq::new(4, 64));
    let mut pairs = [&looked, &polled].map(|cq| qp(7, cq, cq, None));
    // The first poll processes the command that attaches the queue pair.
    assert_eq!((looked.poll(), polled.poll()), (None, None));
    let (mut sends, mut receives) = (0, 0);
    for (round, (mut entry, kind)) in kinds().into_iter().enumerate() {
        let wr_id = round as u64;
        for pair in &mut pairs {
            let segment = Segment {
                addr: target.addr(0),
                length: 64,
                lkey: 1,
            };
            match entry.request {
                0 => pair.recv(wr_id, &[segment]).unwrap(),
                _ => pair.send(wr_id).unwrap(),
            }
        }
        let count = match entry.request {
            0 => &mut receives,
            _ => &mut sends,
        };
        entry.counter = *count;
        *count += 1;
        looked.write(entry);
        polled.write(entry);
        let expected = polled.poll();
        assert!(expected.is_some());

        assert!(looked.poller.ring.peek().is_some());
        let cqe = looked.poller.peek().unwrap();
        assert_eq!((cqe.context(), cqe.kind()), (Some(context(7)), kind));
        assert!(!cqe.has_more(1));
        assert_eq!(looked.device.in_use(), 1, "peeking consumes nothing");
        let (slot, own_op) = looked.poller.ring.next_slot();
        let consumed = CqeRef::new(&mut looked.poller, slot, own_op).consume();
        if let CqeKind::RecvImm | CqeKind::RecvWriteImm | CqeKind::Other = kind {
            assert_eq!((consumed, looked.device.in_use()), (None, 1));
            assert_eq!(looked.poll(), expected);
        } else {
            assert_eq!(consumed, expected);
        }
        assert_eq!(looked.device.in_use(), 0);
        assert!(looked.poller.peek().is_none());
    }
}

#[test]
fn immediate_data_and_atomics_are_consumed_with_what_they_have_more() {
    let mut cq = Cq::new(4, 64);
    let mut pair = qp(7, &cq, &cq, None);
    assert_eq!(cq.poll(), None);
    for (at, opcode) in [(0, 3), (1, 1)] {
        pair.recv(20, &[]).unwrap();
        cq.write(Entry {
            opcode,
            imm: 9,
            ..received(7, at, 5)
        });
        let cqe = cq.poller.peek().unwrap();
        assert_eq!(cqe.imm(), 9);
        assert_eq!(
            cqe.consume_recv(|wr_id, length| (wr_id, length)),
            Some((20, 5))
        );
    }
    let all = (0..=u8::MAX).filter_map(WqeOpcode::from_bits);
    for (at, opcode) in all.filter(|opcode| opcode.is_atomic()).enumerate() {
        let op = CompletionOp::of(opcode);
        assert!(op.is_atomic(), "{opcode:?}");
        let next = |counter| Entry {
            request: opcode as u8,
            ..done(7, counter)
        };
        let counter = 2 * at as u16;
        pair.send(30).unwrap();
        cq.write(next(counter));
        let cqe = cq.poller.peek().unwrap();
        assert_eq!((cqe.kind(), cqe.request_op()), (CqeKind::Request, None));
        assert_eq!(cqe.extended_op(), Some(op));
        assert_eq!(cqe.consume_request().map(|(wr_id, _)| wr_id), Some(30));
        pair.send(31).unwrap();
        cq.write(next(counter + 1));
        let polled = cq.poll().map(|it| (it.wr_id, it.op, it.byte_len));
        assert_eq!(polled, Some((31, op, 8)));
    }
    assert_eq!(cq.device.in_use(), 0);
}

#[test]
fn a_stale_cqe_is_left_to_the_slow_path() {
    let mut cq = Cq::new(4, 64);
    let mut pair = qp(7, &cq, &cq, None);
    pair.recv(1, &[]).unwrap();
    assert_eq!(cq.poll(), None);
    cq.write(received(7, 0, 5));
    assert_eq!(cq.poller.peek().unwrap().context(), Some(context(7)));
    pair.pair.reset();
    let cqe = cq.poller.peek().unwrap();
    assert_eq!((cqe.context(), cqe.consume()), (None, None));
    assert_eq!(cq.device.in_use(), 1);
    assert_eq!(cq.poll(), None);
    assert_eq!((cq.device.in_use(), cq.poller.counters().stale), (0, 1));
}

#[test]
fn a_cqe_ref_reports_how_many_cqes_follow() {
    let mut cq = Cq::new(4, 64);
    let mut pair = qp(7, &cq, &cq, None);
    assert_eq!(cq.poll(), None);
    // Across the end of the ring, and more than one lap.
    for round in 0..6u16 {
        for at in 0..3 {
            pair.recv(u64::from(at), &[]).unwrap();
            cq.write(received(7, 3 * round + at, 1));
        }
        for left in (0..3).rev() {
            let cqe = cq.poller.peek().unwrap();
            let behind = [0, 1, 2, 3, 4, 100].map(|many| cqe.has_more(many));
            assert_eq!(behind, [0, 1, 2, 3, 4, 100].map(|many| many <= left));
            assert!(cq.poll().is_some());
        }
    }
}
