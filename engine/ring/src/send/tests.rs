//! The send ring: bytes, limits and doorbells, case by case.

mod atomic;
mod list;
mod model;

use std::sync::Arc;

use super::*;
use crate::layout::RegisterLayout;
use crate::request::{AtomicOp, Message, Segment, SendOp};
use crate::testing::Memory;
use crate::wire::WqeOpcode;

const QPN: u32 = 0x12_3456;
const HALF: u32 = 256;

struct Fixture {
    ring: Memory,
    record: Memory,
    register: Memory,
    layout: SendLayout,
    consumer: Arc<SendConsumer>,
    producer: SendProducer,
}

fn fixture(wqebbs: u32, segments: u32, inline: u32, exclusive: bool, start: u32) -> Fixture {
    let ring = Memory::new(wqebbs as usize * WQEBB, 0xa5);
    let record = Memory::new(64, 0);
    let register = Memory::new(2 * HALF as usize, 0);
    let doorbell = RegisterLayout {
        half_size: HALF,
        exclusive,
        ..RegisterLayout::new(register.at(0))
    };
    let layout = SendLayout {
        max_segments: segments,
        max_inline: inline,
        atomics: true,
        ..SendLayout::new(ring.at(0), wqebbs, record.at(4).cast(), doorbell, QPN)
    };
    let policy = DoorbellPolicy {
        blue_flame: true,
        locked: !exclusive,
    };
    // SAFETY: the memory outlives both halves; `Fixture` drops them with it.
    let consumer = Arc::new(unsafe { SendConsumer::new(&layout) }.unwrap());
    consumer
        .retired
        .store(start.wrapping_mul(3), Ordering::Relaxed);
    // SAFETY: the consumer stays where it is, and is kept beside the producer.
    let mut producer = unsafe { SendProducer::new(&layout, policy, &consumer) };
    producer.producer = start as u16;
    producer.open();
    Fixture {
        ring,
        record,
        register,
        layout,
        consumer,
        producer,
    }
}

fn segment(addr: u64, length: u32) -> Segment {
    Segment {
        addr,
        length,
        lkey: 0x0102_0304,
    }
}

fn send(wr_id: u64, segments: &[Segment]) -> SendRequest<'_> {
    SendRequest {
        wr_id,
        op: SendOp::Send,
        flags: SendFlags::SIGNALED,
        segments,
    }
}

impl Fixture {
    fn post(&mut self, request: &SendRequest<'_>) -> Result<(), PostError> {
        // SAFETY: inline segments of these tests name live memory; nothing
        // reads the others.
        unsafe { self.producer.post(request, 0) }
    }

    fn post_list(&mut self, requests: &[SendRequest<'_>]) -> Result<(), ListError> {
        // SAFETY: as above.
        unsafe { self.producer.post_list(requests) }
    }

    fn retire(&self, counter: u16) -> Retired {
        // SAFETY: no device reads the ring.
        unsafe { self.consumer.retire(counter) }
    }
}

#[test]
fn a_send_has_the_bytes_that_the_header_defines() {
    let mut fixture = fixture(4, 2, 0, false, 0xfffd);
    fixture
        .post(&send(
            1,
            &[segment(0x1122_3344_5566_7788, 0x40), segment(0x99, 0)],
        ))
        .unwrap();
    let expected = [
        0x00, 0xff, 0xfd, 0x0a, 0x12, 0x34, 0x56, 0x02, 0, 0, 0, 0x08, 0, 0, 0, 0, // control
        0x00, 0x00, 0x00, 0x40, 1, 2, 3, 4, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88,
    ];
    assert_eq!(fixture.ring.bytes(64, 32), expected);
    assert_eq!(
        fixture.ring.bytes(96, 32),
        [0xa5; 32],
        "nothing else of the WQEBB is touched"
    );
    assert_eq!(fixture.record.be32(4), 0xfffe);
    assert_eq!(
        fixture.register.bytes(0, 8),
        expected[..8],
        "the register gets the first 8 bytes"
    );
    assert!(fixture.register.bytes(8, 504).iter().all(|&byte| byte == 0));
}

#[test]
fn a_write_with_immediate_has_the_bytes_that_the_header_defines() {
    let mut fixture = fixture(4, 1, 0, true, 0);
    let op = SendOp::WriteImm {
        remote_addr: 0xaabb_ccdd_0011_2233,
        rkey: 0xcafe,
        imm: 0x0102_0304,
    };
    let flags = SendFlags::SOLICITED | SendFlags::FENCE;
    fixture
        .post(&SendRequest {
            wr_id: 1,
            op,
            flags,
            segments: &[segment(0x5000, 1)],
        })
        .unwrap();
    let mut expected = vec![
        0, 0, 0, 0x09, 0x12, 0x34, 0x56, 0x03, 0, 0, 0, 0x82, 1, 2, 3, 4, // control
        0xaa, 0xbb, 0xcc, 0xdd, 0, 0x11, 0x22, 0x33, 0, 0, 0xca, 0xfe, 0, 0, 0, 0, // remote
        0, 0, 0, 1, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0x50, 0, // data
    ];
    expected.extend([0xa5; 16]);
    assert_eq!(fixture.ring.bytes(0, 64), expected);
    assert_eq!(
        fixture.register.bytes(0, 64),
        expected,
        "BlueFlame: whole blocks, stale bytes too"
    );
    assert_eq!(fixture.register.bytes(64, 448), [0; 448]);
}

#[test]
fn a_full_queue_takes_more_only_after_a_completion() {
    let mut fixture = fixture(4, 2, 0, false, 0);
    assert_eq!(fixture.producer.capacity(), 4);
    for wr_id in 0..4 {
        fixture.post(&send(wr_id, &[])).unwrap();
    }
    let before = fixture.ring.all();
    assert_eq!(fixture.post(&send(4, &[])), Err(PostError::QueueFull));
    assert_eq!(fixture.ring.all(), before);
    assert_eq!(
        fixture.retire(1).wr_id,
        1,
        "the second WQE; the first was not signalled"
    );
    fixture.post(&send(4, &[])).unwrap();
    fixture.post(&send(5, &[])).unwrap();
    assert_eq!(fixture.post(&send(6, &[])), Err(PostError::QueueFull));
}

#[test]
fn a_limit_is_exact_and_may_be_raised_later() {
    let mut fixture = fixture(4, 2, 0, false, 0);
    fixture.producer.limit(9);
    assert_eq!(
        fixture.producer.capacity(),
        4,
        "no more than the ring holds"
    );
    fixture.producer.limit(2);
    for wr_id in 0..2 {
        fixture.post(&send(wr_id, &[])).unwrap();
    }
    assert_eq!(fixture.post(&send(2, &[])), Err(PostError::QueueFull));
    fixture.producer.limit(3);
    fixture.post(&send(2, &[])).unwrap();
    assert_eq!(fixture.post(&send(3, &[])), Err(PostError::QueueFull));
    assert_eq!(fixture.retire(2).wr_id, 2);
    for wr_id in 3..6 {
        fixture.post(&send(wr_id, &[])).unwrap();
    }
    assert_eq!(fixture.post(&send(6, &[])), Err(PostError::QueueFull));
}

#[test]
fn wr_data_is_returned_with_the_request() {
    let mut fixture = fixture(4, 2, 0, false, 0);
    // SAFETY: a request without segments.
    unsafe { fixture.producer.post(&send(5, &[]), 0xdead_beef) }.unwrap();
    fixture.post(&send(6, &[])).unwrap();
    let first = fixture.retire(0);
    assert_eq!((first.wr_id, first.wr_data), (5, 0xdead_beef));
    let second = fixture.retire(1);
    assert_eq!((second.wr_id, second.wr_data), (6, 0));
}

#[test]
fn the_longest_wqe_decides_how_many_requests_fit() {
    // 2 + 5 units are two WQEBBs.
    assert_eq!(fixture(8, 5, 0, false, 0).producer.capacity(), 4);
    // 2 + 60 / 16 units: header and 60 bytes make 4 units, two WQEBBs.
    assert_eq!(fixture(8, 1, 60, false, 0).producer.capacity(), 4);
    assert_eq!(fixture(8, 1, 28, false, 0).producer.capacity(), 8);
}

#[test]
fn bad_requests_are_refused_and_leave_no_trace() {
    let mut fixture = fixture(16, 2, 20, false, 0);
    let data = [7u8; 64];
    let at = data.as_ptr().expose_provenance() as u64;
    let three = [segment(1, 1); 3];
    assert_eq!(
        fixture.post(&send(0, &three)),
        Err(PostError::TooManySegments)
    );
    let inline = SendRequest {
        flags: SendFlags::INLINE,
        ..send(0, &[])
    };
    let long = SendRequest {
        segments: &[segment(at, 21)],
        ..inline
    };
    assert_eq!(fixture.post(&long), Err(PostError::InlineTooLong));
    let huge = [segment(1, u32::MAX), segment(1, u32::MAX)];
    assert_eq!(
        fixture.post(&send(0, &huge)),
        Err(PostError::MessageTooLong)
    );
    assert_eq!(
        fixture.post(&send(0, &[segment(1, 1 << 31)])),
        Err(PostError::MessageTooLong)
    );
    let long = SendRequest {
        segments: &huge,
        ..inline
    };
    assert_eq!(fixture.post(&long), Err(PostError::InlineTooLong));
    assert_eq!(fixture.record.all(), [0; 64]);
    assert!(fixture.register.all().iter().all(|&byte| byte == 0));
    fixture.producer.close();
    assert_eq!(fixture.post(&send(0, &[])), Err(PostError::NotReady));
}

#[test]
fn a_list_rings_once_with_its_last_good_request() {
    let mut fixture = fixture(16, 2, 0, true, 0);
    let two = [segment(1, 1); 2];
    let three = [segment(1, 1); 3];
    assert_eq!(fixture.post_list(&[]), Ok(()));
    assert_eq!(fixture.record.be32(4), 0);
    let result = fixture.post_list(&[send(1, &two), send(2, &two), send(3, &three), send(4, &two)]);
    assert_eq!(
        result,
        Err(ListError {
            posted: 2,
            error: PostError::TooManySegments
        })
    );
    assert_eq!(fixture.record.be32(4), 2);
    assert_eq!(fixture.register.bytes(0, 8), fixture.ring.bytes(64, 8));
    assert_eq!(
        fixture.register.bytes(8, 504),
        [0; 504],
        "one doorbell, and no BlueFlame"
    );
    // A list of one is a single request.
    fixture.post_list(&[send(5, &two)]).unwrap();
    assert_eq!(fixture.register.bytes(256, 64), fixture.ring.bytes(128, 64));
}

#[test]
fn a_zero_byte_request_is_too_short_for_blue_flame() {
    let mut fixture = fixture(16, 1, 0, true, 0);
    fixture.post(&send(1, &[])).unwrap();
    assert_eq!(fixture.register.bytes(0, 8), fixture.ring.bytes(0, 8));
    assert_eq!(fixture.register.bytes(8, 56), [0; 56]);
}

#[test]
fn blue_flame_stops_at_the_size_of_a_half() {
    let mut fixture = fixture(64, 20, 0, true, 0);
    let segments = [segment(0x1000, 8); 16];
    fixture.post(&send(1, &segments[..15])).unwrap();
    assert_eq!(
        fixture.register.bytes(0, 256),
        fixture.ring.bytes(0, 256),
        "16 units fit"
    );
    fixture.post(&send(2, &segments)).unwrap();
    assert_eq!(
        fixture.register.bytes(256, 8),
        fixture.ring.bytes(256, 8),
        "17 do not"
    );
    assert_eq!(fixture.register.bytes(264, 248), [0; 248]);
}

#[test]
fn layouts_that_contradict_themselves_are_refused() {
    let good = fixture(8, 1, 0, false, 0).layout;
    let refused = |layout: SendLayout| {
        // SAFETY: refused before the memory is used; it is not used here.
        unsafe { SendConsumer::new(&layout) }.is_err()
    };
    assert!(refused(SendLayout {
        wqebb_count: 12,
        ..good
    }));
    assert!(refused(SendLayout {
        wqebb_count: 1 << 16,
        ..good
    }));
    assert!(refused(SendLayout {
        qpn: 1 << 24,
        ..good
    }));
    assert!(refused(SendLayout {
        max_segments: 62,
        ..good
    }));
    for many in [1 << 31, u32::MAX - 18, u32::MAX - 1, u32::MAX] {
        assert!(refused(SendLayout {
            max_segments: many,
            ..good
        }));
        assert!(refused(SendLayout {
            max_inline: many,
            ..good
        }));
    }
    assert!(refused(SendLayout {
        wqebb_count: 1,
        max_segments: 5,
        ..good
    }));
    assert!(refused(SendLayout {
        max_requests: 0,
        ..good
    }));
}

#[test]
fn no_ring_reads_as_a_nop_that_never_completes() {
    let none = SendConsumer::none();
    assert!(none.is_idle());
    assert_eq!(none.opcode(0xffff), WqeOpcode::Nop as u8);
    assert!(none.read_units(7, 1).is_none());
}

/// Returns a queue that is kept full.
fn full() -> Fixture {
    let mut fixture = fixture(8, 1, 0, false, 0);
    let capacity = u64::from(fixture.producer.capacity());
    for wr_id in 0..capacity {
        fixture.post(&send(wr_id, &[segment(0x1000, 8)])).unwrap();
    }
    fixture
}

#[test]
fn a_queue_that_is_kept_full_is_posted_to_in_line() {
    let mut fixture = full();
    let segments = [segment(0x1000, 8)];
    // SAFETY: nothing reads the segments.
    let in_line = |fixture: &mut Fixture, wr_id| unsafe {
        let producer = &mut fixture.producer;
        producer.try_post(&send(wr_id, &segments), 0)
    };
    for wr_id in 8..40 {
        assert!(!in_line(&mut fixture, wr_id), "full");
        let counter = (wr_id - 8) as u16;
        assert_eq!(fixture.retire(counter).wr_id, wr_id - 8);
        assert!(in_line(&mut fixture, wr_id), "one is free");
    }
}

#[test]
fn what_must_carry_a_fence_is_never_posted_in_line() {
    let mut fixture = full();
    let segments = [segment(0x1000, 8)];
    fixture.retire(0);
    fixture.producer.fence_next(CtrlFlags::SMALL_FENCE);
    let limits: [fn(&mut SendProducer); 3] = [
        |_| {},
        // Neither a new limit nor opening the queue again allows a post without
        // the fence.
        |producer| producer.limit(producer.capacity()),
        SendProducer::open,
    ];
    for change in limits {
        change(&mut fixture.producer);
        let producer = &mut fixture.producer;
        // SAFETY: nothing reads the segments.
        let posted = unsafe { producer.try_post(&send(50, &segments), 0) };
        assert!(!posted);
    }
    let at = usize::from(fixture.producer.producer) % 8 * WQEBB;
    fixture.post(&send(50, &segments)).unwrap();
    assert_eq!(
        fixture.ring.bytes(at + 11, 1),
        [0x28],
        "small fence, signalled"
    );
    assert_eq!(
        fixture.post(&send(51, &segments)),
        Err(PostError::QueueFull)
    );
}

#[test]
fn a_lower_limit_while_a_fence_is_due_is_kept() {
    let mut fixture = fixture(64, 1, 0, false, 0);
    fixture.post(&send(0, &[])).unwrap();
    fixture.producer.fence_next(CtrlFlags::SMALL_FENCE);
    fixture.producer.limit(4);
    for wr_id in 1..4 {
        fixture.post(&send(wr_id, &[])).unwrap();
    }
    assert_eq!(fixture.post(&send(4, &[])), Err(PostError::QueueFull));
}
