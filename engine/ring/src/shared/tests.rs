//! The shared receive ring against a model of libmlx5 v48: its `srq.c` in single
//! bytes, links and a set of free WQEs.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use proptest::prelude::*;

use super::*;
use crate::request::{ListError, Segment};
use crate::testing::Memory;

struct Fixture {
    ring: Memory,
    record: Memory,
    consumer: Arc<SharedRecvConsumer>,
    producer: SharedRecvProducer,
}

/// Returns a ring as libmlx5 leaves it: WQE `i` linked to `i + 1`.
fn fixture(count: u16, stride: u32, start: u32) -> Fixture {
    let ring = Memory::new(usize::from(count) * stride as usize, 0xa5);
    for index in 0..count - 1 {
        ring.write(
            usize::from(index) * stride as usize + 2,
            &(index + 1).to_be_bytes(),
        );
    }
    let record = Memory::new(64, 0);
    record.write(0, &(start & 0xffff).to_be_bytes());
    let layout = SharedRecvLayout {
        buf: ring.at(0),
        stride,
        head: 0,
        tail: count - 1,
        dbrec: record.at(0).cast(),
        srqn: 5,
    };
    // SAFETY: the memory outlives both halves; `Fixture` drops them with it.
    let consumer = Arc::new(unsafe { SharedRecvConsumer::new(&layout) }.unwrap());
    consumer.returned.store(start, Ordering::Relaxed);
    // SAFETY: the consumer stays where it is, and is kept beside the producer.
    let mut producer = unsafe { SharedRecvProducer::new(&layout, &consumer) };
    producer.posted = start;
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

    /// Completes a receive by one of the functions of the consumer.
    fn complete(&self, index: u16, wr_id: u64) {
        let found = match wr_id % 3 {
            0 => None,
            // SAFETY: no device reads the ring.
            1 => unsafe { self.consumer.take_next(index) },
            _ => {
                let mut found = None;
                let take = |returns: &mut Returns<'_>| {
                    // SAFETY: as above.
                    found = Some(unsafe { returns.take(index) });
                    1
                };
                // SAFETY: as above.
                unsafe { self.consumer.return_alone(take) };
                found
            }
        };
        match found {
            Some(found) => assert_eq!(found, wr_id),
            None => self.free(index),
        }
    }

    fn free(&self, index: u16) {
        // SAFETY: no device reads the ring, and one thread gives WQEs back.
        unsafe { self.consumer.free(index) };
    }

    /// Returns the link of a WQE.
    fn link(&self, index: u16) -> u16 {
        let stride = self.consumer.stride;
        let link = self.ring.bytes(usize::from(index) * stride + 2, 2);
        u16::from_be_bytes([link[0], link[1]])
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
    let mut fixture = fixture(4, 64, 0xffff);
    fixture.post(7, &[segment(0), segment(3)]).unwrap();
    let mut expected = vec![0xa5, 0xa5, 0, 1];
    expected.extend([0xa5; 12]);
    for length in [0, 3] {
        expected.extend([0, 0, 0, length, 0xde, 0xad, 0xbe, 0xef]);
        expected.extend([0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88]);
    }
    expected.extend([0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(fixture.ring.bytes(0, 64), expected);
    assert_eq!(fixture.record.be32(0), 0, "the count of posts has 16 bits");
    assert_eq!(fixture.consumer.wr_id(0), 7);
}

#[test]
fn all_but_one_wqe_can_be_posted() {
    let mut fixture = fixture(4, 32, 0);
    assert_eq!(fixture.producer.capacity(), 3);
    for wr_id in 0..3 {
        fixture.post(wr_id, &[segment(1)]).unwrap();
    }
    assert_eq!(fixture.post(3, &[]), Err(PostError::QueueFull));
    assert_eq!(
        fixture.post(3, &[segment(1); 2]),
        Err(PostError::TooManySegments)
    );
    fixture.free(1);
    fixture.post(3, &[segment(1)]).unwrap();
    assert_eq!(
        fixture.consumer.wr_id(3),
        3,
        "the WQE that was kept free is used, and WQE 1 is free"
    );
    assert_eq!(fixture.post(4, &[]), Err(PostError::QueueFull));
    assert_eq!(fixture.ring.bytes(3 * 32 + 2, 2), [0, 1]);
}

/// Completions of WQEs that are not posted, that repeat, or that are outside
/// the ring: posts stay inside the ring, and terminate.
#[test]
fn indices_from_nowhere_stay_inside_the_ring() {
    let mut fixture = fixture(4, 32, 0);
    fixture.ring.write(2, &0xfffdu16.to_be_bytes());
    fixture.post(1, &[]).unwrap();
    assert_eq!(fixture.ring.bytes(2, 2), [0, 1], "no link is read");
    fixture.post(2, &[]).unwrap();
    assert_eq!(fixture.consumer.wr_id(0xfffd), 2);
    for index in [0xfffd, 0xfff2, 0, 0, 3, 3, 2, 0x8001, 1, 1, 1, 0, 0] {
        fixture.free(index);
        fixture.free(index);
    }
    let posted = (0..100).take_while(|&it| fixture.post(it, &[]).is_ok());
    assert!(posted.count() <= 26 + 3);
    assert_eq!(fixture.ring.all().len(), 128);
}

/// WQEs that are released in order are posted on the fast path, after a full
/// queue or completions out of order too.
#[test]
fn order_is_found_again() {
    let mut fixture = fixture(8, 32, 0);
    for wr_id in 0..7 {
        fixture.post(wr_id, &[segment(1)]).unwrap();
    }
    let request = RecvRequest {
        wr_id: 0,
        segments: &[segment(1)],
    };
    for index in 0..20 {
        assert_eq!(fixture.post(0, &[segment(1)]), Err(PostError::QueueFull));
        fixture.free(index % 8);
        // SAFETY: nothing writes to the segment.
        assert!(unsafe { fixture.producer.try_post(&request) });
    }
    // WQE 3 is kept free, and 4 is the oldest that is posted.
    for index in [5, 4, 6, 7] {
        fixture.free(index);
    }
    // SAFETY: as above.
    assert!(unsafe { !fixture.producer.try_post(&request) });
    for _ in 0..4 {
        fixture.post(0, &[segment(1)]).unwrap();
    }
    for index in 0..20 {
        fixture.free(index % 8);
        // SAFETY: as above.
        assert!(unsafe { fixture.producer.try_post(&request) });
    }
}

/// A post on a full queue finds the one released WQE at any index.
#[test]
fn receives_released_out_of_order_are_found() {
    let mut fixture = fixture(256, 32, 0);
    for wr_id in 0..255 {
        fixture.post(wr_id, &[segment(1)]).unwrap();
    }
    let mut kept_free = 255;
    for wr_id in 0..if cfg!(miri) { 100 } else { 2000 } {
        assert_eq!(fixture.post(0, &[segment(1)]), Err(PostError::QueueFull));
        let index = (wr_id * 77 + 13) as u16 % 256;
        if index == kept_free {
            continue;
        }
        fixture.free(index);
        fixture.post(wr_id, &[segment(1)]).unwrap();
        assert_eq!(fixture.consumer.wr_id(kept_free), wr_id);
        kept_free = index;
    }
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

/// One thread posts, one or two complete: every post completes once, with its
/// `wr_id`, and all WQEs are reused.
fn posted_and_completed_across_threads(pollers: usize) {
    let rounds: u64 = if cfg!(miri) { 200 } else { 200_000 };
    let mut fixture = fixture(8, 32, 0);
    let queues: Vec<_> = (0..pollers)
        .map(|_| std::sync::mpsc::channel::<(u16, u64)>())
        .collect();
    let (senders, receivers): (Vec<_>, Vec<_>) = queues.into_iter().unzip();
    let done = AtomicBool::new(false);
    if pollers > 1 {
        fixture.consumer.allow_several_pollers();
    }
    let Fixture {
        consumer, producer, ..
    } = &mut fixture;
    let consumer: &SharedRecvConsumer = consumer;
    std::thread::scope(|scope| {
        let handles: Vec<_> = receivers
            .into_iter()
            .map(|receiver| {
                scope.spawn(move || {
                    let mut seen = 0;
                    for (index, wr_id) in receiver {
                        assert_eq!(consumer.wr_id(index), wr_id);
                        // SAFETY: no device reads the ring, and several threads
                        // are allowed if there are.
                        unsafe { consumer.free(index) };
                        seen += 1;
                    }
                    seen
                })
            })
            .collect();
        let mut wr_id = 0;
        while wr_id < rounds {
            let index = producer.head as u16;
            let request = RecvRequest {
                wr_id,
                segments: &[],
            };
            // SAFETY: no segments.
            match unsafe { producer.post(&request) } {
                Ok(()) => {
                    senders[wr_id as usize % pollers]
                        .send((index, wr_id))
                        .unwrap();
                    wr_id += 1;
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
    // Every WQE was released: as many as at the start can be posted.
    for wr_id in 0..7 {
        fixture.post(wr_id, &[]).unwrap();
    }
    assert_eq!(fixture.post(7, &[]), Err(PostError::QueueFull));
}

#[test]
fn one_thread_posts_and_another_completes() {
    posted_and_completed_across_threads(1);
}

#[test]
fn one_thread_posts_and_two_complete() {
    posted_and_completed_across_threads(2);
}

/// libmlx5 v48: `mlx5_post_srq_recv`, `set_next_contig_wqes` and
/// `mlx5_free_srq_wqe`.
struct Model {
    bytes: Vec<u8>,
    stride: usize,
    head: usize,
    tail: usize,
    free: Vec<bool>,
}

impl Model {
    fn count(&self) -> usize {
        self.free.len()
    }

    fn link(&mut self, from: usize, to: usize) {
        let at = from * self.stride + 2;
        self.bytes[at..at + 2].copy_from_slice(&(to as u16).to_be_bytes());
    }

    /// Returns the first run in a range: its first WQE and how many follow it.
    fn contiguous(&self, range: core::ops::Range<usize>) -> Option<(usize, usize)> {
        let first = range.clone().find(|&at| self.free[at])?;
        let length = (first..range.end).take_while(|&at| self.free[at]).count();
        Some((first, length))
    }

    /// Extends the list; returns whether any WQE is free.
    fn extend(&mut self) -> bool {
        let next = (self.tail + 1) % self.count();
        let (first, length) = if self.free[next] {
            (next, 1)
        } else {
            let ahead = self.contiguous(self.head + 1..self.count());
            match ahead.or_else(|| self.contiguous(0..self.head)) {
                Some(run) => run,
                None => return false,
            }
        };
        self.link(self.tail, first);
        self.tail = first + length - 1;
        for at in first..=self.tail {
            self.free[at] = false;
            if at < self.tail {
                self.link(at, at + 1);
            }
        }
        true
    }

    /// Returns the WQE that the request was written to.
    fn post(&mut self, segments: &[Segment]) -> Result<u16, PostError> {
        if segments.len() > self.stride / 16 - 1 {
            return Err(PostError::TooManySegments);
        }
        if self.head == self.tail && !self.extend() {
            return Err(PostError::QueueFull);
        }
        let mut wqe = Vec::new();
        for segment in segments {
            wqe.extend(segment.length.to_be_bytes());
            wqe.extend(segment.lkey.to_be_bytes());
            wqe.extend(segment.addr.to_be_bytes());
        }
        if wqe.len() + 16 < self.stride {
            wqe.extend([0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        }
        let (index, start) = (self.head, self.head * self.stride);
        self.bytes[start + 16..start + 16 + wqe.len()].copy_from_slice(&wqe);
        self.head = usize::from(u16::from_be_bytes([
            self.bytes[start + 2],
            self.bytes[start + 3],
        ]));
        Ok(index as u16)
    }

    /// Returns the ring, with links only where the device may read them.
    fn seen(&self, mut bytes: Vec<u8>, posted: &[(u16, u64)]) -> Vec<u8> {
        for index in (0..self.count()).filter(|&index| {
            posted
                .iter()
                .all(|&(posted, _)| usize::from(posted) != index)
        }) {
            bytes[index * self.stride + 2..][..2].fill(0);
        }
        bytes
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]

    #[test]
    fn every_byte_is_what_libmlx5_would_have_written(
        log in prop_oneof![1u32..5, Just(7u32)],
        stride_log in 5u32..8,
        start in prop_oneof![Just(0u32), 0xfff0u32..0x1_0002, u32::MAX - 9..=u32::MAX],
        ops in prop::collection::vec(
            prop_oneof![
                prop::collection::vec(
                    prop_oneof![
                        3 => prop::collection::vec(1u32..9999, 1),
                        1 => prop::collection::vec(prop_oneof![Just(0u32), 1u32..9999], 0..9),
                    ], 1..40)
                    .prop_map(Ok),
                // Which of the outstanding ones completes: any, often the oldest.
                prop::collection::vec(
                    prop_oneof![Just(0.0), 0.0..1.0f64], 1..40).prop_map(Err),
            ],
            1..60,
        ),
    ) {
        let (count, stride) = (1u16 << log, 1usize << stride_log);
        let mut fixture = fixture(count, stride as u32, start);
        let mut model = Model {
            bytes: fixture.ring.all(),
            stride,
            head: 0,
            tail: usize::from(count) - 1,
            free: vec![false; usize::from(count)],
        };
        let mut outstanding: Vec<(u16, u64)> = Vec::new();
        let mut device = 0u16;
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
                    let before = outstanding.len();
                    let mut expected = Ok(());
                    for (at, request) in requests.iter().enumerate() {
                        match model.post(request.segments) {
                            Ok(index) => outstanding.push((index, request.wr_id)),
                            Err(error) => {
                                expected = Err(ListError { posted: at, error });
                                break;
                            }
                        }
                        posted = posted.wrapping_add(1);
                    }
                    let found = if let [one] = requests.as_slice() {
                        fixture
                            .post(one.wr_id, one.segments)
                            .map_err(|error| ListError { posted: 0, error })
                    } else {
                        fixture.post_list(&requests)
                    };
                    prop_assert_eq!(found, expected);
                    // The device follows the links.
                    for &(index, _) in &outstanding[before..] {
                        prop_assert_eq!(device, index);
                        device = fixture.link(index);
                    }
                    prop_assert_eq!(u32::from(device), fixture.producer.head);
                    prop_assert_eq!(fixture.record.be32(0), posted & 0xffff);
                }
                Err(which) => {
                    for which in which {
                        if outstanding.is_empty() {
                            break;
                        }
                        let at = (which * outstanding.len() as f64) as usize;
                        let (index, wr_id) = outstanding.remove(at);
                        prop_assert_eq!(fixture.consumer.wr_id(index), wr_id);
                        fixture.complete(index, wr_id);
                        model.free[usize::from(index)] = true;
                    }
                }
            }
            prop_assert_eq!(fixture.consumer.outstanding(), outstanding.len() as u32);
            prop_assert_eq!(
                model.seen(fixture.ring.all(), &outstanding),
                model.seen(model.bytes.clone(), &outstanding)
            );
        }
    }

    /// After completions in any order, the posts to an empty queue form one
    /// run.
    #[test]
    fn a_queue_that_was_empty_is_posted_to_in_one_run(
        order in Just((0..63u16).collect::<Vec<_>>()).prop_shuffle(),
        before in 0u64..64,
    ) {
        let mut fixture = fixture(64, 32, 0);
        for wr_id in 0..before {
            fixture.post(wr_id, &[segment(1)]).unwrap();
            fixture.free(wr_id as u16);
        }
        let first = fixture.producer.head as u16;
        for wr_id in 0..63 {
            fixture.post(wr_id, &[segment(1)]).unwrap();
        }
        for index in order {
            fixture.free((first + index) % 64);
        }
        let first = fixture.producer.head as u16;
        for wr_id in 0..63 {
            fixture.post(wr_id, &[segment(1)]).unwrap();
            prop_assert_eq!(fixture.consumer.wr_id((first + wr_id as u16) % 64), wr_id);
        }
    }
}
