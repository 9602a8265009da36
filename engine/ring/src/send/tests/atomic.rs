//! Atomic operations.

use super::*;

/// Returns an atomic operation. Inline is ignored, as for a read.
fn atomic(remote_addr: u64, segments: &[Segment]) -> SendRequest<'_> {
    let (compare, swap) = (1, 2);
    SendRequest {
        wr_id: 1,
        op: SendOp::Atomic {
            remote_addr,
            rkey: 7,
            op: AtomicOp::CompareSwap { compare, swap },
        },
        flags: SendFlags::SIGNALED | SendFlags::INLINE,
        segments,
    }
}

#[test]
fn the_payload_of_an_atomic_operation_may_come_in_the_cqe() {
    let mut fixture = fixture(4, 1, 0, true, 0);
    let one = [segment(0x5000, 8)];
    fixture.post(&atomic(16, &one)).unwrap();
    let (counter, length) = (0, 8);
    assert!(fixture.consumer.read_units(counter, length).is_some());
}

#[test]
fn an_atomic_operation_needs_8_aligned_bytes_and_a_device_that_has_it() {
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
            fixture.post(&atomic(remote_addr, segments)),
            Err(PostError::BadAtomic),
            "{remote_addr}, {segments:?}"
        );
    }
    assert_eq!(fixture.record.be32(4), 0, "nothing was posted");
    fixture.post(&atomic(16, &[eight])).unwrap();
    fixture.producer.atomics = false;
    assert_eq!(
        fixture.post(&atomic(16, &[eight])),
        Err(PostError::NoAtomics)
    );
}
