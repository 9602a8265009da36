//! The receive ring against a model that writes single bytes, as libmlx5's
//! `mlx5_post_recv` does.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::request::{ListError, Segment};
use crate::testing::Memory;

struct Fixture {
    ring: Memory,
    record: Memory,
    consumer: Arc<RecvConsumer>,
    producer: RecvProducer,
}

fn fixture(count: u32, stride: u32, start: u32) -> Fixture {
    let ring = Memory::new((count * stride) as usize, 0xa5);
    let record = Memory::new(64, 0);
    let layout = RecvLayout {
        buf: ring.at(0),
        wqe_count: count,
        stride,
        dbrec: record.at(0).cast(),
    };
    // SAFETY: the memory outlives both halves; `Fixture` drops them with it.
    let consumer = Arc::new(unsafe { RecvConsumer::new(&layout) }.unwrap());
    consumer.retired.store(start, Ordering::Relaxed);
    // SAFETY: the consumer stays where it is, and is kept beside the producer.
    let mut producer = unsafe { RecvProducer::new(&layout, &consumer) };
    producer.open();
    Fixture {
        ring,
        record,
        consumer,
        producer,
    }
}

impl Fixture {
    fn post_list(&mut self, requests: &[RecvRequest<'_>]) -> Result<(), ListError> {
        // SAFETY: the segments of these tests are written by no device.
        unsafe { self.producer.post_list(requests) }
    }

    fn post(&mut self, wr_id: u64, segments: &[Segment]) -> Result<(), PostError> {
        // SAFETY: as above.
        unsafe { self.producer.post(&RecvRequest { wr_id, segments }) }
    }

    /// Completes the oldest receive.
    fn retire(&self) {
        // SAFETY: no device reads the ring.
        unsafe { self.consumer.retire(1) };
    }
}

fn segment(length: u32) -> Segment {
    Segment {
        addr: 0x1122_3344_5566_7788,
        length,
        lkey: 0xdead_beef,
    }
}

#[test]
fn a_wqe_is_its_segments_and_a_terminator() {
    let mut fixture = fixture(2, 64, 0);
    fixture.post(9, &[segment(0), segment(0x100)]).unwrap();
    let mut expected = vec![
        0, 0, 1, 0, 0xde, 0xad, 0xbe, 0xef, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, //
        0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ];
    expected.extend([0xa5; 32]);
    assert_eq!(fixture.ring.bytes(0, 64), expected);
    assert_eq!(fixture.record.be32(0), 1);
    assert_eq!(fixture.consumer.wr_id(0), 9);
}

#[test]
fn a_full_wqe_has_no_terminator() {
    let mut fixture = fixture(2, 32, 0);
    fixture.post(1, &[segment(1), segment(2)]).unwrap();
    assert_eq!(fixture.ring.bytes(32, 32), [0xa5; 32]);
    assert_eq!(
        fixture.post(2, &[segment(1); 3]),
        Err(PostError::TooManySegments)
    );
    assert_eq!(
        fixture.post(2, &[segment(1 << 31)]),
        Err(PostError::MessageTooLong)
    );
    assert_eq!(fixture.record.be32(0), 1);
}

#[test]
fn a_closed_queue_is_not_ready_rather_than_full() {
    let mut fixture = fixture(1, 16, 0);
    fixture.producer.close();
    assert_eq!(fixture.post(1, &[]), Err(PostError::NotReady));
    fixture.producer.open();
    fixture.post(1, &[]).unwrap();
    assert_eq!(fixture.post(1, &[]), Err(PostError::QueueFull));
}

#[test]
fn a_queue_that_is_kept_full_is_posted_to_in_line() {
    let mut fixture = fixture(4, 16, 0xfffe);
    for wr_id in 0..4 {
        fixture.post(wr_id, &[segment(1)]).unwrap();
    }
    for wr_id in 4..20 {
        assert!(!fixture.producer.finds_room());
        let wqe_counter = 0xfffe_u16.wrapping_add(wr_id as u16 - 4);
        assert_eq!(fixture.consumer.wr_id(wqe_counter), wr_id - 4);
        fixture.retire();
        assert!(fixture.producer.finds_room());
        fixture.post(wr_id, &[segment(1)]).unwrap();
    }
    fixture.producer.close();
    assert!(!fixture.producer.finds_room());
}

#[test]
fn what_is_not_a_queue_is_not_ready() {
    // SAFETY: neither opened nor asked what is outstanding.
    let mut none = unsafe { RecvProducer::none() };
    let request = RecvRequest {
        wr_id: 1,
        segments: &[segment(1)],
    };
    // SAFETY: nothing is posted.
    let (one, list) = unsafe { (none.post(&request), none.post_list(&[request])) };
    let error = PostError::NotReady;
    assert_eq!(one, Err(error));
    assert_eq!(list, Err(ListError { posted: 0, error }));
    assert_eq!(none.capacity(), 0);
}

#[test]
fn layouts_that_contradict_themselves_are_refused() {
    let memory = Memory::new(4096, 0);
    let refused = |wqe_count, stride| {
        let (buf, dbrec) = (memory.at(0), memory.at(0).cast());
        // SAFETY: large enough for what is not refused at once.
        unsafe {
            RecvConsumer::new(&RecvLayout {
                buf,
                wqe_count,
                stride,
                dbrec,
            })
        }
        .is_err()
    };
    assert!(!refused(4, 16));
    assert!(refused(0, 16));
    assert!(refused(6, 16));
    assert!(refused(1 << 16, 16));
    assert!(refused(4, 8));
    assert!(refused(4, 48));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]

    #[test]
    fn every_byte_is_what_libmlx5_would_have_written(
        log in 0u32..6,
        stride_log in 4u32..8,
        start in prop_oneof![Just(0u32), 0xfff0u32..0x1_0002, u32::MAX - 9..=u32::MAX],
        ops in prop::collection::vec(
            prop_oneof![
                prop::collection::vec(
                    prop::collection::vec(prop_oneof![Just(0u32), 1u32..9999], 0..10), 1..5)
                    .prop_map(Ok),
                (1u32..5).prop_map(Err),
            ],
            1..60,
        ),
    ) {
        let (count, stride) = (1u32 << log, 1u32 << stride_log);
        let mut fixture = fixture(count, stride, start);
        let mut model = fixture.ring.all();
        let mut outstanding = std::collections::VecDeque::new();
        let mut posted = start;
        for op in ops {
            match op {
                Ok(list) => {
                    let list: Vec<Vec<Segment>> =
                        list.iter().map(|l| l.iter().map(|&l| segment(l)).collect()).collect();
                    let requests: Vec<RecvRequest<'_>> = list
                        .iter()
                        .enumerate()
                        .map(|(i, segments)| {
                            RecvRequest { wr_id: u64::from(posted) << 8 | i as u64, segments }
                        })
                        .collect();
                    let mut expected = Ok(());
                    for (at, request) in requests.iter().enumerate() {
                        let error = if outstanding.len() == count as usize {
                            Some(PostError::QueueFull)
                        } else if request.segments.len() > stride as usize / 16 {
                            Some(PostError::TooManySegments)
                        } else {
                            None
                        };
                        if let Some(error) = error {
                            expected = Err(ListError { posted: at, error });
                            break;
                        }
                        let mut wqe = Vec::new();
                        for s in request.segments.iter().filter(|s| s.length > 0) {
                            wqe.extend(s.length.to_be_bytes());
                            wqe.extend(s.lkey.to_be_bytes());
                            wqe.extend(s.addr.to_be_bytes());
                        }
                        if wqe.len() < stride as usize {
                            wqe.extend([0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
                        }
                        let start = (posted % count * stride) as usize;
                        model[start..start + wqe.len()].copy_from_slice(&wqe);
                        outstanding.push_back((posted as u16, request.wr_id));
                        posted = posted.wrapping_add(1);
                    }
                    prop_assert_eq!(fixture.post_list(&requests), expected);
                    if !outstanding.is_empty() && posted != start {
                        prop_assert_eq!(fixture.record.be32(0), posted & 0xffff);
                    }
                    prop_assert_eq!(&fixture.ring.bytes(0, model.len()), &model);
                }
                Err(completions) => {
                    for _ in 0..completions {
                        let Some((wqe_counter, wr_id)) = outstanding.pop_front() else { break };
                        prop_assert_eq!(fixture.consumer.wr_id(wqe_counter), wr_id);
                        fixture.retire();
                    }
                }
            }
        }
    }
}
