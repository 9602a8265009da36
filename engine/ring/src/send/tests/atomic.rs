//! Atomic operations.

use super::*;

/// Returns an atomic operation. Inline is ignored, as for a read.
fn atomic(op: SendOp, segments: &[Segment]) -> SendRequest<'_> {
    SendRequest {
        wr_id: 1,
        op,
        flags: SendFlags::SIGNALED | SendFlags::INLINE,
        segments,
    }
}

#[test]
fn atomic_operations_have_the_bytes_that_the_header_defines() {
    let mut fixture = fixture(4, 1, 0, true, 0);
    let (remote_addr, rkey) = (0xaabb_ccdd_0011_2238, 0xcafe);
    let swap = SendOp::CompareSwap {
        remote_addr,
        rkey,
        compare: 0x0102_0304_0506_0708,
        swap: 0x1112_1314_1516_1718,
    };
    let add = SendOp::FetchAdd {
        remote_addr,
        rkey,
        add: 0x2122_2324_2526_2728,
    };
    let one = [segment(0x5000, 8)];
    fixture.post(&atomic(swap, &one)).unwrap();
    fixture.post(&atomic(add, &one)).unwrap();
    let expected = |opcode, counter, operands: [u8; 16]| {
        let mut bytes = vec![
            0, 0, counter, opcode, 0x12, 0x34, 0x56, 0x04, 0, 0, 0, 0x08, 0, 0, 0,
            0, // control
            0xaa, 0xbb, 0xcc, 0xdd, 0, 0x11, 0x22, 0x38, 0, 0, 0xca, 0xfe, 0, 0, 0,
            0, // remote
        ];
        bytes.extend(operands);
        bytes.extend([0, 0, 0, 8, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0x50, 0]); // data
        bytes
    };
    let mut operands = [0; 16];
    for (at, byte) in operands.iter_mut().enumerate() {
        let high = if at < 8 { 0x11 } else { 0x01 };
        *byte = high + (at % 8) as u8;
    }
    assert_eq!(fixture.ring.bytes(0, 64), expected(0x11, 0, operands));
    for (at, byte) in operands.iter_mut().enumerate() {
        *byte = if at < 8 { 0x21 + at as u8 } else { 0xa5 };
    }
    assert_eq!(
        fixture.ring.bytes(64, 64),
        expected(0x12, 1, operands),
        "the word to compare with is not touched"
    );
    let (counter, length) = (0, 8);
    let units = fixture.consumer.read_units(counter, length);
    assert!(units.is_some(), "the payload may come in the CQE");
}

#[test]
fn an_atomic_operation_needs_8_aligned_bytes_and_a_device_that_has_it() {
    let add = |remote_addr| SendOp::FetchAdd {
        remote_addr,
        rkey: 7,
        add: 1,
    };
    let mut fixture = fixture(4, 2, 0, true, 0);
    let (eight, seven, nine) = (segment(0x51, 8), segment(0x50, 7), segment(0x50, 9));
    for (remote_addr, segments) in [
        (8, &[][..]),
        (8, &[seven]),
        (8, &[nine]),
        (8, &[segment(0, 0), eight]),
        (12, &[eight]),
    ] {
        assert_eq!(
            fixture.post(&atomic(add(remote_addr), segments)),
            Err(PostError::BadAtomic),
            "{remote_addr}, {segments:?}"
        );
    }
    assert_eq!(fixture.record.be32(4), 0, "nothing was posted");
    fixture.post(&atomic(add(16), &[eight])).unwrap();
    fixture.producer.atomics = false;
    assert_eq!(
        fixture.post(&atomic(add(16), &[eight])),
        Err(PostError::NoAtomics)
    );
}
