//! Payload in the CQE.

use super::*;
use crate::path::direct::CqeKind;

/// Each length that fits a CQE is copied on the fast path, to the first segment, and
/// nothing beyond it.
#[test]
fn a_short_payload_is_copied_on_the_fast_path() {
    for stride in [64, 128] {
        let mut cq = Cq::new(4, stride);
        let mut srq = Srq::new();
        let mut own = qp(1, &cq, &cq, None);
        let _shared = qp(2, &cq, &cq, Some(&srq));
        assert_eq!(cq.poll(), None);
        let target = Memory::new(64, 0xa5);
        for length in 1..=32u32 {
            let payload: Vec<u8> = (0..32).map(|at| at + length as u8).collect();
            for qpn in [1, 2] {
                target.write(0, &[0xa5; 64]);
                let segment = Segment {
                    addr: target.addr(7),
                    length,
                    lkey: 1,
                };
                match qpn {
                    1 => own.recv(length.into(), &[segment]).unwrap(),
                    _ => srq.post(length.into(), &[segment]).unwrap(),
                }
                let counter = match qpn {
                    1 => length - 1,
                    _ => (length - 1) % 4,
                };
                let entry = Entry {
                    form: 4,
                    ..received(qpn, counter as u16, length)
                };
                cq.write_with(entry, &payload);
                let cqe = cq.poller.peek().unwrap();
                assert_eq!(cqe.kind(), CqeKind::RecvInCqe);
                // Miri has no membarrier, without which a shared receive takes the slow path.
                let consumed = match cfg!(miri) && qpn == 2 {
                    true => cq.poll(),
                    false => cqe.consume(),
                };
                let expected = Completion {
                    byte_len: length,
                    ..good(length.into(), CompletionOp::Recv, qpn)
                };
                assert_eq!(consumed, Some(expected), "{length} bytes on {qpn}");
                assert_eq!(cq.device.in_use(), 0);
                assert_eq!(target.bytes(7, length as usize), payload[..length as usize]);
                assert_eq!(target.bytes(0, 7), [0xa5; 7]);
                assert_eq!(target.bytes(7 + length as usize, 8), [0xa5; 8]);
            }
        }
    }
}

/// What the first segment does not take, and lengths that no CQE holds, are left to the
/// slow path, which consumes the CQE.
#[test]
fn other_payloads_are_left_to_the_slow_path() {
    let mut cq = Cq::new(8, 64);
    let mut pair = qp(1, &cq, &cq, None);
    assert_eq!(cq.poll(), None);
    let target = Memory::new(128, 0xa5);
    let piece = |offset, length| Segment {
        addr: target.addr(offset),
        length,
        lkey: 1,
    };
    let long = [piece(0, 64)];
    let parts = [piece(0, 8), piece(64, 8)];
    let cases: [(&[Segment], u32, Status, u32); 4] = [
        (&long, 0, Status::Success, 0),
        (&parts, 9, Status::Success, 9),
        (&parts, 17, Status::LocalLength, 0),
        // More than the CQE has: the slow path adds zeros.
        (&long, 33, Status::Success, 33),
    ];
    for (counter, (segments, length, status, byte_len)) in cases.into_iter().enumerate() {
        pair.recv(counter as u64, segments).unwrap();
        let entry = Entry {
            form: 4,
            ..received(1, counter as u16, length)
        };
        cq.write_with(entry, &[counter as u8; 32]);
        assert_eq!(cq.poller.peek().unwrap().consume(), None, "{length} bytes");
        assert_eq!(cq.device.in_use(), 1, "{length} bytes");
        let expected = Completion {
            status,
            byte_len,
            ..good(counter as u64, CompletionOp::Recv, 1)
        };
        assert_eq!(cq.poll(), Some(expected));
    }
    assert_eq!(target.bytes(64, 1), [2]);
}

/// A batch copies payloads too.
#[test]
fn a_batch_copies_short_payloads() {
    let mut cq = Cq::new(8, 64);
    let mut pair = qp(1, &cq, &cq, None);
    let target = Memory::new(64, 0xa5);
    for counter in 0..3u16 {
        let segment = Segment {
            addr: target.addr(16 * usize::from(counter)),
            length: 16,
            lkey: 1,
        };
        pair.recv(counter.into(), &[segment]).unwrap();
        let form = if counter == 1 { 0 } else { 4 };
        let entry = Entry {
            form,
            ..received(1, counter, 16)
        };
        let payload = [counter as u8; 16];
        cq.write_with(entry, if form == 0 { &[] } else { &payload });
    }
    let mut taken = [Completion::default(); 4];
    assert_eq!(cq.poller.poll_batch(&mut taken), 3);
    for (counter, completion) in taken[..3].iter().enumerate() {
        let expected = Completion {
            byte_len: 16,
            ..good(counter as u64, CompletionOp::Recv, 1)
        };
        assert_eq!(*completion, expected);
    }
    assert_eq!(target.bytes(0, 16), [0; 16]);
    assert_eq!(target.bytes(16, 16), [0xa5; 16]);
    assert_eq!(target.bytes(32, 16), [2; 16]);
}

#[test]
fn small_messages_are_copied_to_the_segments_of_the_receive() {
    for (stride, form, size) in [(64, 4u8, 32usize), (128, 4, 32), (128, 8, 64)] {
        let mut cq = Cq::new(8, stride);
        let mut srq = Srq::new();
        let mut own = qp(1, &cq, &cq, None);
        let _shared = qp(2, &cq, &cq, Some(&srq));
        let target = Memory::new(256, 0xa5);
        let piece = |offset, length| Segment {
            addr: target.addr(offset),
            length,
            lkey: 1,
        };
        let payload: Vec<u8> = (1..=size as u8).collect();
        own.recv(1, &[piece(0, 5), piece(64, 100)]).unwrap();
        srq.post(2, &[piece(128, 64)]).unwrap();
        cq.write_with(
            Entry {
                form,
                ..received(1, 0, size as u32)
            },
            &payload,
        );
        cq.write_with(
            Entry {
                form,
                ..received(2, 0, size as u32 - 1)
            },
            &payload,
        );
        let expected = Completion {
            byte_len: size as u32,
            ..good(1, CompletionOp::Recv, 1)
        };
        assert_eq!(cq.poll(), Some(expected));
        assert_eq!(target.bytes(0, 6), [1, 2, 3, 4, 5, 0xa5]);
        assert_eq!(target.bytes(64, size - 5), payload[5..]);
        assert_eq!(target.bytes(64 + size - 5, 3), [0xa5; 3]);
        assert_eq!(cq.poll().map(|c| c.byte_len), Some(size as u32 - 1));
        assert_eq!(target.bytes(128, size - 1), payload[..size - 1]);
        assert_eq!(target.bytes(128 + size - 1, 2), [0xa5; 2]);
    }
}

#[test]
fn a_small_message_that_does_not_fit_is_a_length_error() {
    let mut cq = Cq::new(8, 64);
    let mut pair = qp(1, &cq, &cq, None);
    let target = Memory::new(64, 0xa5);
    pair.recv(
        1,
        &[Segment {
            addr: target.addr(0),
            length: 8,
            lkey: 1,
        }],
    )
    .unwrap();
    cq.write_with(
        Entry {
            form: 4,
            ..received(1, 0, 9)
        },
        &[7; 9],
    );
    let expected = Completion {
        status: Status::LocalLength,
        ..good(1, CompletionOp::Recv, 1)
    };
    assert_eq!(cq.poll(), Some(expected));
    assert_eq!(target.bytes(8, 56), [0xa5; 56]);
}

#[test]
fn a_64_byte_payload_in_a_64_byte_entry_is_refused() {
    let mut cq = Cq::new(8, 64);
    let mut pair = qp(1, &cq, &cq, None);
    pair.recv(1, &[]).unwrap();
    pair.send(2).unwrap();
    // There is no first half: it would be the CQE before.
    cq.write(done(1, 0));
    cq.write_with(
        Entry {
            form: 8,
            ..received(1, 0, 1)
        },
        &[],
    );
    assert_eq!(cq.poll().map(|c| c.wr_id), Some(2));
    let expected = Completion {
        status: Status::General,
        ..good(1, CompletionOp::Recv, 1)
    };
    assert_eq!(cq.poll(), Some(expected));
}

#[test]
fn the_result_of_a_small_read_is_copied_across_the_end_of_the_ring() {
    let mut cq = Cq::new(32, 64);
    let mut pair = qp(1, &cq, &cq, None);
    let target = Memory::new(64, 0xa5);
    let read = SendOp::Read {
        remote_addr: 1,
        rkey: 1,
    };
    let pieces = [
        Segment {
            addr: target.addr(1),
            length: 3,
            lkey: 1,
        },
        Segment {
            addr: target.addr(32),
            length: 30,
            lkey: 1,
        },
    ];
    for counter in 0..9u16 {
        pair.send_op(u64::from(counter), read, &pieces).unwrap();
        let entry = Entry {
            form: 4,
            request: 0x10,
            bytes: 32,
            ..done(1, counter)
        };
        let payload: Vec<u8> = (0..32).map(|i| i + counter as u8).collect();
        cq.write_with(entry, &payload);
        let expected = Completion {
            byte_len: 32,
            ..good(u64::from(counter), CompletionOp::Read, 1)
        };
        assert_eq!(cq.poll(), Some(expected));
        assert_eq!(target.bytes(1, 3), payload[..3]);
        assert_eq!(target.bytes(32, 29), payload[3..]);
    }
    pair.send(9).unwrap();
    cq.write_with(
        Entry {
            form: 4,
            ..done(1, 9)
        },
        &[1; 4],
    );
    assert_eq!(
        cq.poll().map(|c| c.status),
        Some(Status::RemoteInvalidRequest)
    );
}
