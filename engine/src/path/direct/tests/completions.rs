//! The results of polling, for every kind of completion.

use super::*;
use crate::path::PollerCounters;
use crate::path::direct::table::LARGE;

#[test]
fn sends_and_receives_complete_with_their_wr_ids() {
    for stride in [64, 128] {
        let mut cq = Cq::new(16, stride);
        let mut pair = qp(0x10, &cq, &cq, None);
        pair.recv(1, &[]).unwrap();
        pair.recv(2, &[]).unwrap();
        pair.send(3).unwrap();
        assert_eq!(cq.poll(), None);
        cq.write(received(0x10, 0, 77));
        cq.write(done(0x10, 0));
        cq.write(Entry {
            form: 2,
            ..received(0x10, 1, 5)
        });
        let first = Completion {
            byte_len: 77,
            ..good(1, CompletionOp::Recv, 0x10)
        };
        assert_eq!(cq.poll(), Some(first));
        assert_eq!(cq.poll(), Some(good(3, CompletionOp::Send, 0x10)));
        let solicited = Completion {
            byte_len: 5,
            flags: CompletionFlags::SOLICITED,
            ..good(2, CompletionOp::Recv, 0x10)
        };
        assert_eq!(cq.poll(), Some(solicited));
        assert_eq!(cq.poll(), None);
        assert_eq!(cq.poller.counters(), PollerCounters::default());
    }
}

/// The stamp is that of the CQE whose completion is returned, not of a skipped CQE before it,
/// and each kind of CQE has one but an error.
#[test]
fn a_polled_completion_has_the_stamp_of_its_cqe() {
    for stride in [64, 128] {
        let mut cq = Cq::new(8, stride);
        let mut pair = qp(0x10, &cq, &cq, None);
        for wr_id in 1..=3 {
            pair.recv(wr_id, &[]).unwrap();
        }
        pair.send(4).unwrap();
        assert_eq!(cq.poller.poll_stamped(), None);
        let at = |stamp, entry| Entry { stamp, ..entry };
        let error = Entry {
            opcode: 14,
            syndrome: 5,
            ..received(0x10, 2, 0)
        };
        cq.write(at(7, received(0x99, 0, 5)));
        cq.write(at(40, received(0x10, 0, 77)));
        cq.write(at(40, done(0x10, 0)));
        cq.write(at(8, received(0x99, 1, 5)));
        cq.write(at(u64::MAX, received(0x10, 1, 5)));
        cq.write(at(50, error));
        let stamps: Vec<_> = std::iter::from_fn(|| cq.poller.poll_stamped())
            .map(|(completion, stamp)| (completion.wr_id, stamp))
            .collect();
        let expected = [
            (1, Arrival::At(40)),
            (4, Arrival::At(40)),
            (2, Arrival::At(u64::MAX)),
            (3, Arrival::Unknown),
        ];
        assert_eq!(stamps, expected);
        assert_eq!(cq.poller.counters().unknown, 2);
    }
}

#[test]
fn every_kind_of_completion_reports_its_operation() {
    let mut cq = Cq::new(32, 64);
    let mut pair = qp(7, &cq, &cq, None);
    let (remote_addr, rkey) = (1, 2);
    let sends = [
        (SendOp::Send, 0x0a, CompletionOp::Send),
        (SendOp::SendImm(1), 0x0b, CompletionOp::Send),
        (
            SendOp::Write { remote_addr, rkey },
            0x08,
            CompletionOp::Write,
        ),
        (
            SendOp::WriteImm {
                remote_addr,
                rkey,
                imm: 1,
            },
            0x09,
            CompletionOp::WriteImm,
        ),
        (SendOp::Read { remote_addr, rkey }, 0x10, CompletionOp::Read),
    ];
    for (counter, (op, request, expected)) in sends.into_iter().enumerate() {
        pair.send_op(counter as u64, op, &[]).unwrap();
        cq.write(Entry {
            request,
            bytes: 9,
            ..done(7, counter as u16)
        });
        let byte_len = if expected == CompletionOp::Read { 9 } else { 0 };
        let expected = Completion {
            byte_len,
            ..good(counter as u64, expected, 7)
        };
        assert_eq!(cq.poll(), Some(expected));
    }
    let with_imm = |op, imm| Completion {
        imm,
        byte_len: 4,
        flags: CompletionFlags::WITH_IMM | CompletionFlags::SOLICITED,
        ..good(50, op, 7)
    };
    let kinds = [(1, CompletionOp::RecvWriteImm), (3, CompletionOp::Recv)];
    for (counter, (opcode, op)) in kinds.into_iter().enumerate() {
        pair.recv(50, &[]).unwrap();
        cq.write(Entry {
            opcode,
            form: 2,
            imm: 0x8000_0001,
            ..received(7, counter as u16, 4)
        });
        assert_eq!(cq.poll(), Some(with_imm(op, 0x8000_0001)));
    }
}

#[test]
fn every_syndrome_becomes_its_status_on_both_sides() {
    let mut cq = Cq::new(4, 64);
    let mut pair = qp(7, &cq, &cq, None);
    // Miri is slow.
    let each = if cfg!(miri) { 23 } else { 1 };
    for (syndrome, counter) in (1..=255u8).step_by(each).zip(0..) {
        pair.send(u64::from(syndrome)).unwrap();
        pair.recv(1000 + u64::from(syndrome), &[]).unwrap();
        let error = Entry {
            opcode: 13,
            syndrome,
            vendor: 0x5a,
            bytes: 99,
            ..done(7, counter)
        };
        cq.write(error);
        cq.write(Entry {
            opcode: 14,
            ..error
        });
        let status = mlx5_rings::wire::Syndrome(syndrome).status();
        assert_ne!(status, Status::Success);
        let expected = Completion {
            status,
            vendor_syndrome: 0x5a,
            ..good(u64::from(syndrome), CompletionOp::Send, 7)
        };
        assert_eq!(cq.poll(), Some(expected));
        let expected = Completion {
            wr_id: 1000 + u64::from(syndrome),
            op: CompletionOp::Recv,
            ..expected
        };
        assert_eq!(cq.poll(), Some(expected));
    }
}

/// One by one and in a batch, successful and failed, with payload in the CQE and
/// without.
#[test]
fn a_completion_reports_the_receive_that_it_names() {
    let target = Memory::new(4 * 64, 0);
    let piece = |at: u64| Segment {
        addr: target.addr(at as usize * 64),
        length: 64,
        lkey: 1,
    };
    let post = |pair: &mut Qp, first: u64| {
        for wr_id in first..first + 4 {
            pair.recv(wr_id, &[piece(wr_id - first)]).unwrap();
        }
        assert_eq!(pair.recv(0, &[]), Err(PostError::QueueFull));
    };
    for batch in [false, true] {
        let mut cq = Cq::new(32, 64);
        let mut pair = qp(7, &cq, &cq, None);
        post(&mut pair, 10);
        cq.write(received(7, 2, 1));
        cq.write(Entry {
            opcode: 14,
            syndrome: 5,
            ..received(7, 0, 0)
        });
        let inline = Entry {
            form: 4,
            ..received(7, 3, 5)
        };
        cq.write_with(inline, b"there");
        cq.write(received(7, 1, 1));
        let mut out = [Completion::default(); 8];
        let found = if batch {
            cq.poller.poll_batch(&mut out)
        } else {
            for place in &mut out[..4] {
                *place = cq.poll().unwrap();
            }
            4
        };
        assert_eq!(found, 4);
        let wr_ids = [0, 1, 2, 3].map(|at| out[at].wr_id);
        assert_eq!(wr_ids, [12, 10, 13, 11]);
        assert_eq!(out[1].status, Status::WrFlush);
        assert_eq!(target.bytes(3 * 64, 6), b"there\0");
        target.write(3 * 64, &[0; 5]);
        // Each completion has released one receive.
        post(&mut pair, 20);
    }
}

/// Counters from the device are masked to the ring.
#[test]
fn a_counter_of_no_posted_receive_stays_inside_the_ring() {
    let mut cq = Cq::new(32, 64);
    let mut pair = qp(7, &cq, &cq, None);
    for wr_id in 10..14 {
        pair.recv(wr_id, &[]).unwrap();
    }
    for (counter, wr_id) in [(0xffff, 13), (0x8002, 12), (6, 12), (0, 10)] {
        cq.write(received(7, counter, 1));
        assert_eq!(cq.poll().map(|c| c.wr_id), Some(wr_id));
    }
}

#[test]
fn a_batch_stops_when_it_is_full_or_nothing_is_left() {
    let mut cq = Cq::new(8, 64);
    let mut pair = qp(7, &cq, &cq, None);
    for wr_id in 0..3 {
        pair.send(wr_id).unwrap();
        cq.write(done(7, wr_id as u16));
    }
    let mut out = [Completion::default(); 2];
    assert_eq!(cq.poller.poll_batch(&mut []), 0);
    assert_eq!(cq.poller.poll_batch(&mut out), 2);
    assert_eq!([out[0].wr_id, out[1].wr_id], [0, 1]);
    assert_eq!(cq.poller.poll_batch(&mut out), 1);
    assert_eq!(out[0].wr_id, 2);
    assert_eq!(cq.poller.poll_batch(&mut out), 0);
}

#[test]
fn unsignalled_sends_are_retired_by_the_next_signalled_send() {
    let mut cq = Cq::new(8, 64);
    let mut pair = qp(7, &cq, &cq, None);
    for wr_id in 0..8 {
        pair.send(wr_id).unwrap();
    }
    assert_eq!(pair.send(8), Err(PostError::QueueFull));
    cq.write(done(7, 4));
    assert_eq!(cq.poll().map(|c| c.wr_id), Some(4));
    for wr_id in 8..13 {
        pair.send(wr_id).unwrap();
    }
    assert_eq!(pair.send(13), Err(PostError::QueueFull));
}

#[test]
fn cqes_of_unknown_queue_pairs_and_opcodes_are_skipped_and_counted() {
    let mut cq = Cq::new(32, 64);
    let mut pair = qp(7, &cq, &cq, None);
    pair.send(1).unwrap();
    cq.write(done(8, 0));
    cq.write(received(0x00ff_ffff, 0, 1));
    cq.write(Entry {
        opcode: 12,
        ..done(7, 0)
    });
    cq.write(Entry {
        opcode: 5,
        ..done(7, 0)
    });
    cq.write(Entry {
        request: 0x3f,
        ..done(7, 0)
    });
    cq.write(done(7, 0));
    assert_eq!(cq.poll(), Some(good(1, CompletionOp::Send, 7)));
    assert_eq!(
        cq.poller.counters(),
        PollerCounters {
            unknown: 5,
            stale: 0
        }
    );
}

#[test]
fn receives_on_a_queue_pair_that_has_none_are_skipped_and_counted() {
    let mut cq = Cq::new(8, 64);
    let recv_cq = Cq::new(8, 64);
    let srq = Srq::new();
    let _pair = qp(7, &cq, &recv_cq, Some(&srq));
    cq.write(Entry {
        opcode: 9,
        ..received(7, 0, 1)
    });
    assert_eq!(cq.poll(), None);
    assert_eq!(cq.poller.counters().unknown, 1);
}

#[test]
fn queue_pairs_with_colliding_numbers_are_all_found() {
    let mut cq = Cq::new(256, 64);
    let numbers: Vec<u32> = (0..40).map(|i| i << 18 | 3).collect();
    let mut pairs: Vec<Qp> = numbers.iter().map(|&qpn| qp(qpn, &cq, &cq, None)).collect();
    for round in 0..2 {
        for (pair, &qpn) in pairs.iter_mut().zip(&numbers) {
            pair.send(u64::from(qpn)).unwrap();
            cq.write(done(qpn, round));
        }
        for &qpn in &numbers {
            assert_eq!(
                cq.poll(),
                Some(good(u64::from(qpn), CompletionOp::Send, qpn))
            );
        }
    }
    // Every other queue pair is dropped; the rest are still found.
    let mut index = 0;
    pairs.retain(|_| {
        index += 1;
        index % 2 == 0
    });
    for pair in &mut pairs {
        let qpn = pair.pair.qpn();
        pair.send(1).unwrap();
        cq.write(done(qpn, 2));
        assert_eq!(cq.poll(), Some(good(1, CompletionOp::Send, qpn)));
    }
    assert_eq!(cq.poller.counters(), PollerCounters::default());
}

#[test]
fn shared_receives_are_reused_after_their_completions() {
    let mut cq = Cq::new(8, 64);
    let mut srq = Srq::new();
    let _a = qp(1, &cq, &cq, Some(&srq));
    let _b = qp(2, &cq, &cq, Some(&srq));
    for wr_id in 10..13 {
        srq.post(wr_id, &[]).unwrap();
    }
    assert_eq!(srq.post(13, &[]), Err(PostError::QueueFull));
    // Out of order, and one of them an error.
    cq.write(received(2, 1, 6));
    cq.write(Entry {
        opcode: 14,
        syndrome: 1,
        ..received(1, 0, 0)
    });
    let expected = Completion {
        byte_len: 6,
        ..good(11, CompletionOp::Recv, 2)
    };
    assert_eq!(cq.poll(), Some(expected));
    let failed = Completion {
        status: Status::LocalLength,
        ..good(10, CompletionOp::Recv, 1)
    };
    assert_eq!(cq.poll(), Some(failed));
    srq.post(13, &[]).unwrap();
    srq.post(14, &[]).unwrap();
    assert_eq!(srq.post(15, &[]), Err(PostError::QueueFull));
    // WQE 1 was released first, but WQE 0 follows the last WQE of the ring.
    assert_eq!(srq.ring.bytes(3 * 64 + 2, 2), [0, 0]);
    assert_eq!(srq.ring.bytes(2, 2), [0, 1]);
}

/// So many queue pairs that the poller looks ahead.
#[test]
fn completions_of_hundreds_of_queue_pairs_are_those_of_their_queue_pairs() {
    const COUNT: usize = LARGE + 44;
    for stride in [64, 128] {
        let mut cq = Cq::new(64, stride);
        let mut pairs: Vec<Qp> = (0..COUNT as u32)
            .map(|qpn| qp(qpn, &cq, &cq, None))
            .collect();
        let mut out = [Completion::default(); 16];
        let mut counters = [0_u16; COUNT];
        for round in 0..if cfg!(miri) { 4_u64 } else { 40 } {
            let mut expected = Vec::new();
            for at in 0..50 {
                let qpn = (round as usize * 50 + at * 7) % COUNT;
                let wr_id = round << 32 | at as u64;
                pairs[qpn].recv(wr_id, &[]).unwrap();
                cq.write(received(qpn as u32, counters[qpn], 5));
                counters[qpn] += 1;
                let completion = good(wr_id, CompletionOp::Recv, qpn as u32);
                expected.push(Completion {
                    byte_len: 5,
                    ..completion
                });
            }
            let mut found = Vec::new();
            if round % 2 == 0 {
                found.extend(core::iter::from_fn(|| cq.poll()));
            } else {
                let mut taken = cq.poller.poll_batch(&mut out);
                while taken > 0 {
                    found.extend_from_slice(&out[..taken]);
                    taken = cq.poller.poll_batch(&mut out);
                }
            }
            assert_eq!(found, expected, "round {round}");
        }
    }
}
