//! Payload in the CQE.

use super::*;

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
