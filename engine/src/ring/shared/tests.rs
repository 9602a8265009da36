//! The shared receive ring against a model that writes single bytes and links,
//! as libmlx5's `mlx5_post_srq_recv` and `mlx5_free_srq_wqe` do.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use proptest::prelude::*;

use super::*;
use crate::request::Segment;
use crate::ring::testing::Memory;

struct Bench {
    ring: Memory,
    record: Memory,
    consumer: Arc<SharedRecvConsumer>,
    producer: SharedRecvProducer,
}

/// A ring as libmlx5 hands it over: WQE `i` linked to `i + 1`.
fn bench(count: u16, stride: u32, start: u32) -> Bench {
    let ring = Memory::new(usize::from(count) * stride as usize, 0xa5);
    for index in 0..count - 1 {
        ring.write(
            usize::from(index) * stride as usize + 2,
            &(index + 1).to_be_bytes(),
        );
    }
    let record = Memory::new(64, 0);
    let layout = SharedRecvLayout {
        buf: ring.at(0),
        stride,
        head: 0,
        tail: count - 1,
        dbrec: record.at(0).cast(),
        srqn: 5,
    };
    // SAFETY: the memory outlives both halves; `Bench` drops them with it.
    let consumer = Arc::new(unsafe { SharedRecvConsumer::new(&layout) }.unwrap());
    // SAFETY: the consumer stays where it is, and is kept beside the producer.
    let mut producer = unsafe { SharedRecvProducer::new(&layout, &consumer) };
    producer.posted = start;
    Bench {
        ring,
        record,
        consumer,
        producer,
    }
}

impl Bench {
    fn post_list(&mut self, requests: &[RecvRequest<'_>]) -> Result<(), ListError> {
        // SAFETY: nobody writes to the segments of these tests.
        unsafe { self.producer.post_list(requests) }
    }

    fn post(&mut self, cookie: u64, segments: &[Segment]) -> Result<(), PostError> {
        // SAFETY: as above.
        unsafe { self.producer.post(&RecvRequest { cookie, segments }) }
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
fn segments_follow_the_link_and_empty_ones_are_written() {
    let mut bench = bench(4, 64, 0xffff);
    bench.post(7, &[segment(0), segment(3)]).unwrap();
    let mut expected = vec![0xa5, 0xa5, 0, 1];
    expected.extend([0xa5; 12]);
    for length in [0, 3] {
        expected.extend([0, 0, 0, length, 0xde, 0xad, 0xbe, 0xef]);
        expected.extend([0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88]);
    }
    expected.extend([0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(bench.ring.bytes(0, 64), expected);
    assert_eq!(bench.record.be32(0), 0, "the count of posts has 16 bits");
    assert_eq!(bench.consumer.cookie(0), 7);
}

#[test]
fn all_but_one_wqe_can_be_posted() {
    let mut bench = bench(4, 32, 0);
    assert_eq!(bench.producer.capacity(), 3);
    for cookie in 0..3 {
        bench.post(cookie, &[segment(1)]).unwrap();
    }
    assert_eq!(bench.post(3, &[]), Err(PostError::QueueFull));
    assert_eq!(
        bench.post(3, &[segment(1); 2]),
        Err(PostError::TooManySegments)
    );
    bench.consumer.free(1);
    bench.post(3, &[segment(1)]).unwrap();
    assert_eq!(
        bench.consumer.cookie(3),
        3,
        "the former tail is used, and WQE 1 is the tail"
    );
    assert_eq!(bench.post(4, &[]), Err(PostError::QueueFull));
    assert_eq!(bench.ring.bytes(3 * 32 + 2, 2), [0, 1]);
}

#[test]
fn a_link_or_an_index_from_nowhere_stays_inside_the_ring() {
    let mut bench = bench(4, 32, 0);
    bench.ring.write(2, &0xfffdu16.to_be_bytes());
    bench.post(1, &[]).unwrap();
    bench.post(2, &[]).unwrap();
    assert_eq!(bench.consumer.cookie(0xfffd), 2);
    bench.consumer.free(0xfff2);
}

#[test]
fn layouts_that_contradict_themselves_are_refused() {
    let memory = Memory::new(4096, 0);
    let refused = |head, tail, stride| {
        let (buf, dbrec) = (memory.at(0), memory.at(0).cast());
        let layout = SharedRecvLayout {
            buf,
            stride,
            head,
            tail,
            dbrec,
            srqn: 1,
        };
        // SAFETY: large enough for what is not refused at once.
        unsafe { SharedRecvConsumer::new(&layout) }.is_err()
    };
    assert!(!refused(0, 3, 32));
    assert!(refused(0, 0, 32));
    assert!(refused(3, 1, 32));
    assert!(refused(0, 4, 32));
    assert!(refused(0, 3, 16));
    assert!(refused(0, 3, 48));
}

/// One thread posts, one or two complete: every post completes once, with the
/// cookie that it was posted with, and the places go round.
fn posted_and_completed_across_threads(pollers: usize) {
    let rounds: u64 = if cfg!(miri) { 200 } else { 200_000 };
    let mut bench = bench(8, 32, 0);
    let queues: Vec<_> = (0..pollers)
        .map(|_| std::sync::mpsc::channel::<(u16, u64)>())
        .collect();
    let (senders, receivers): (Vec<_>, Vec<_>) = queues.into_iter().unzip();
    let done = AtomicBool::new(false);
    if pollers > 1 {
        bench.consumer.allow_several_pollers();
    }
    let Bench {
        consumer, producer, ..
    } = &mut bench;
    let consumer: &SharedRecvConsumer = consumer;
    std::thread::scope(|scope| {
        let handles: Vec<_> = receivers
            .into_iter()
            .map(|receiver| {
                scope.spawn(move || {
                    let mut seen = 0;
                    for (index, cookie) in receiver {
                        assert_eq!(consumer.cookie(index), cookie);
                        consumer.free(index);
                        seen += 1;
                    }
                    seen
                })
            })
            .collect();
        let mut cookie = 0;
        while cookie < rounds {
            let index = producer.head as u16;
            let request = RecvRequest {
                cookie,
                segments: &[],
            };
            // SAFETY: no segments.
            match unsafe { producer.post(&request) } {
                Ok(()) => {
                    senders[cookie as usize % pollers]
                        .send((index, cookie))
                        .unwrap();
                    cookie += 1;
                }
                Err(PostError::QueueFull) => std::thread::yield_now(),
                Err(error) => panic!("{error}"),
            }
        }
        drop(senders);
        let seen: u64 = handles
            .into_iter()
            .map(|handle| handle.join().unwrap())
            .sum();
        assert_eq!(seen, rounds);
        done.store(true, Ordering::Relaxed);
    });
    // Everything came back: as many as at the start can be posted.
    for cookie in 0..7 {
        bench.post(cookie, &[]).unwrap();
    }
    assert_eq!(bench.post(7, &[]), Err(PostError::QueueFull));
}

#[test]
fn one_thread_posts_and_another_completes() {
    posted_and_completed_across_threads(1);
}

#[test]
fn one_thread_posts_and_two_complete() {
    posted_and_completed_across_threads(2);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]

    #[test]
    fn every_byte_is_what_libmlx5_would_have_written(
        log in 1u32..6,
        stride_log in 5u32..8,
        start in prop_oneof![Just(0u32), 0xfff0u32..0x1_0002, u32::MAX - 9..=u32::MAX],
        ops in prop::collection::vec(
            prop_oneof![
                prop::collection::vec(
                    prop::collection::vec(prop_oneof![Just(0u32), 1u32..9999], 0..9), 1..5)
                    .prop_map(Ok),
                // Which of the outstanding ones completes: any, not the oldest.
                prop::collection::vec(any::<prop::sample::Index>(), 1..5).prop_map(Err),
            ],
            1..60,
        ),
    ) {
        let (count, stride) = (1u16 << log, 1usize << stride_log);
        let mut bench = bench(count, stride as u32, start);
        let mut model = bench.ring.all();
        let (mut head, mut tail) = (0u16, count - 1);
        let mut outstanding: Vec<(u16, u64)> = Vec::new();
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
                            RecvRequest { cookie: u64::from(posted) << 8 | i as u64, segments }
                        })
                        .collect();
                    let mut expected = Ok(());
                    for (at, request) in requests.iter().enumerate() {
                        let error = if request.segments.len() > stride / 16 - 1 {
                            Some(PostError::TooManySegments)
                        } else if head == tail {
                            Some(PostError::QueueFull)
                        } else {
                            None
                        };
                        if let Some(error) = error {
                            expected = Err(ListError { posted: at, error });
                            break;
                        }
                        let mut wqe = Vec::new();
                        for s in request.segments {
                            wqe.extend(s.length.to_be_bytes());
                            wqe.extend(s.lkey.to_be_bytes());
                            wqe.extend(s.addr.to_be_bytes());
                        }
                        if wqe.len() + 16 < stride {
                            wqe.extend([0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
                        }
                        let start = usize::from(head) * stride;
                        model[start + 16..start + 16 + wqe.len()].copy_from_slice(&wqe);
                        outstanding.push((head, request.cookie));
                        head = u16::from_be_bytes([model[start + 2], model[start + 3]]);
                        posted = posted.wrapping_add(1);
                    }
                    prop_assert_eq!(bench.post_list(&requests), expected);
                    if posted != start {
                        prop_assert_eq!(bench.record.be32(0), posted & 0xffff);
                    }
                }
                Err(which) => {
                    for which in which {
                        if outstanding.is_empty() {
                            break;
                        }
                        let (index, cookie) = outstanding.remove(which.index(outstanding.len()));
                        prop_assert_eq!(bench.consumer.cookie(index), cookie);
                        bench.consumer.free(index);
                        let at = usize::from(tail) * stride;
                        model[at + 2..at + 4].copy_from_slice(&index.to_be_bytes());
                        tail = index;
                    }
                }
            }
            prop_assert_eq!(&bench.ring.bytes(0, model.len()), &model);
        }
    }
}
