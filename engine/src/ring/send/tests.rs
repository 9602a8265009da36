//! The send ring against a model that writes single bytes, as `mlx5dv.h` and
//! libmlx5's `post_send` put them.

use std::collections::VecDeque;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::request::Segment;
use crate::ring::layout::RegisterLayout;
use crate::ring::testing::Memory;

const QPN: u32 = 0x12_3456;
const HALF: u32 = 256;

struct Bench {
    ring: Memory,
    record: Memory,
    register: Memory,
    layout: SendLayout,
    consumer: Arc<SendConsumer>,
    producer: SendProducer,
}

fn bench(wqebbs: u32, segments: u32, inline: u32, exclusive: bool, start: u32) -> Bench {
    let ring = Memory::new(wqebbs as usize * WQEBB, 0xa5);
    let record = Memory::new(64, 0);
    let register = Memory::new(2 * HALF as usize, 0);
    let layout = SendLayout {
        buf: ring.at(0),
        wqebb_count: wqebbs,
        dbrec: record.at(4).cast(),
        register: RegisterLayout {
            reg: register.at(0),
            half_size: HALF,
            exclusive,
        },
        qpn: QPN,
        max_requests: wqebbs,
        max_segments: segments,
        max_inline: inline,
        windows: false,
    };
    let policy = DoorbellPolicy {
        blue_flame: true,
        serialised: !exclusive,
    };
    // SAFETY: the memory outlives both halves; `Bench` drops them with it.
    let consumer = Arc::new(unsafe { SendConsumer::new(&layout) }.unwrap());
    consumer
        .retired
        .store(start.wrapping_mul(3), Ordering::Relaxed);
    // SAFETY: the consumer stays where it is, and is kept beside the producer.
    let mut producer = unsafe { SendProducer::new(&layout, policy, &consumer) };
    producer.producer = start;
    producer.open();
    Bench {
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

fn send(cookie: u64, segments: &[Segment]) -> SendRequest<'_> {
    SendRequest {
        cookie,
        op: SendOp::Send,
        flags: SendFlags::SIGNALED,
        segments,
    }
}

impl Bench {
    fn post(&mut self, request: &SendRequest<'_>) -> Result<(), PostError> {
        // SAFETY: inline segments of these tests name live memory; nothing
        // reads the others.
        unsafe { self.producer.post(request) }
    }

    fn post_list(&mut self, requests: &[SendRequest<'_>]) -> Result<(), ListError> {
        // SAFETY: as above.
        unsafe { self.producer.post_list(requests) }
    }
}

#[test]
fn a_send_has_the_bytes_that_the_header_defines() {
    let mut bench = bench(4, 2, 0, false, 0xfffd);
    bench
        .post(&send(
            1,
            &[segment(0x1122_3344_5566_7788, 0x40), segment(0x99, 0)],
        ))
        .unwrap();
    let expected = [
        0x00, 0xff, 0xfd, 0x0a, 0x12, 0x34, 0x56, 0x02, 0, 0, 0, 0x08, 0, 0, 0, 0, // control
        0x00, 0x00, 0x00, 0x40, 1, 2, 3, 4, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88,
    ];
    assert_eq!(bench.ring.bytes(64, 32), expected);
    assert_eq!(
        bench.ring.bytes(96, 32),
        [0xa5; 32],
        "nothing else of the WQEBB is touched"
    );
    assert_eq!(bench.record.be32(4), 0xfffe);
    assert_eq!(
        bench.register.bytes(0, 8),
        expected[..8],
        "the register gets the first 8 bytes"
    );
    assert!(bench.register.bytes(8, 504).iter().all(|&byte| byte == 0));
}

#[test]
fn a_write_with_immediate_has_the_bytes_that_the_header_defines() {
    let mut bench = bench(4, 1, 0, true, 0);
    let op = SendOp::WriteImm {
        remote_addr: 0xaabb_ccdd_0011_2233,
        rkey: 0xcafe,
        imm: 0x0102_0304,
    };
    let flags = SendFlags::SOLICITED | SendFlags::FENCE;
    bench
        .post(&SendRequest {
            cookie: 1,
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
    assert_eq!(bench.ring.bytes(0, 64), expected);
    assert_eq!(
        bench.register.bytes(0, 64),
        expected,
        "BlueFlame: whole blocks, stale bytes too"
    );
    assert_eq!(bench.register.bytes(64, 448), [0; 448]);
}

#[test]
fn a_full_queue_takes_more_only_after_a_completion() {
    let mut bench = bench(4, 2, 0, false, 0);
    assert_eq!(bench.producer.capacity(), 4);
    for cookie in 0..4 {
        bench.post(&send(cookie, &[])).unwrap();
    }
    let before = bench.ring.all();
    assert_eq!(bench.post(&send(4, &[])), Err(PostError::QueueFull));
    assert_eq!(bench.ring.all(), before);
    assert_eq!(
        bench.consumer.retire(1).cookie,
        1,
        "the second WQE; the first was not signalled"
    );
    bench.post(&send(4, &[])).unwrap();
    bench.post(&send(5, &[])).unwrap();
    assert_eq!(bench.post(&send(6, &[])), Err(PostError::QueueFull));
}

#[test]
fn a_limit_is_exact_and_may_be_raised_later() {
    let mut bench = bench(4, 2, 0, false, 0);
    bench.producer.limit(9);
    assert_eq!(bench.producer.capacity(), 4, "no more than the ring holds");
    bench.producer.limit(2);
    for cookie in 0..2 {
        bench.post(&send(cookie, &[])).unwrap();
    }
    assert_eq!(bench.post(&send(2, &[])), Err(PostError::QueueFull));
    bench.producer.limit(3);
    bench.post(&send(2, &[])).unwrap();
    assert_eq!(bench.post(&send(3, &[])), Err(PostError::QueueFull));
    assert_eq!(bench.consumer.retire(2).cookie, 2);
    for cookie in 3..6 {
        bench.post(&send(cookie, &[])).unwrap();
    }
    assert_eq!(bench.post(&send(6, &[])), Err(PostError::QueueFull));
}

#[test]
fn a_note_comes_back_with_the_request() {
    let mut bench = bench(4, 2, 0, false, 0);
    // SAFETY: a request without segments.
    unsafe { bench.producer.post_noted(&send(5, &[]), 0xdead_beef) }.unwrap();
    bench.post(&send(6, &[])).unwrap();
    let first = bench.consumer.retire(0);
    assert_eq!((first.cookie, first.note), (5, 0xdead_beef));
    let second = bench.consumer.retire(1);
    assert_eq!((second.cookie, second.note), (6, 0));
}

#[test]
fn the_longest_wqe_decides_how_many_requests_fit() {
    // 2 + 5 units are two WQEBBs.
    assert_eq!(bench(8, 5, 0, false, 0).producer.capacity(), 4);
    // 2 + 60 / 16 units: header and 60 bytes make 4 units, two WQEBBs.
    assert_eq!(bench(8, 1, 60, false, 0).producer.capacity(), 4);
    assert_eq!(bench(8, 1, 28, false, 0).producer.capacity(), 8);
}

#[test]
fn bad_requests_are_refused_and_leave_no_trace() {
    let mut bench = bench(16, 2, 20, false, 0);
    let data = [7u8; 64];
    let at = data.as_ptr().expose_provenance() as u64;
    let three = [segment(1, 1); 3];
    assert_eq!(
        bench.post(&send(0, &three)),
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
    assert_eq!(bench.post(&long), Err(PostError::InlineTooLong));
    let huge = [segment(1, u32::MAX), segment(1, u32::MAX)];
    assert_eq!(bench.post(&send(0, &huge)), Err(PostError::MessageTooLong));
    assert_eq!(
        bench.post(&send(0, &[segment(1, 1 << 31)])),
        Err(PostError::MessageTooLong)
    );
    let long = SendRequest {
        segments: &huge,
        ..inline
    };
    assert_eq!(bench.post(&long), Err(PostError::InlineTooLong));
    assert_eq!(bench.record.all(), [0; 64]);
    assert!(bench.register.all().iter().all(|&byte| byte == 0));
    bench.producer.close();
    assert_eq!(bench.post(&send(0, &[])), Err(PostError::NotReady));
}

#[test]
fn a_list_rings_once_with_its_last_good_request() {
    let mut bench = bench(16, 2, 0, true, 0);
    let two = [segment(1, 1); 2];
    let three = [segment(1, 1); 3];
    assert_eq!(bench.post_list(&[]), Ok(()));
    assert_eq!(bench.record.be32(4), 0);
    let result = bench.post_list(&[send(1, &two), send(2, &two), send(3, &three), send(4, &two)]);
    assert_eq!(
        result,
        Err(ListError {
            posted: 2,
            error: PostError::TooManySegments
        })
    );
    assert_eq!(bench.record.be32(4), 2);
    assert_eq!(bench.register.bytes(0, 8), bench.ring.bytes(64, 8));
    assert_eq!(
        bench.register.bytes(8, 504),
        [0; 504],
        "one doorbell, and no BlueFlame"
    );
    // A list of one is a single request.
    bench.post_list(&[send(5, &two)]).unwrap();
    assert_eq!(bench.register.bytes(256, 64), bench.ring.bytes(128, 64));
}

#[test]
fn a_zero_byte_request_is_too_short_for_blue_flame() {
    let mut bench = bench(16, 1, 0, true, 0);
    bench.post(&send(1, &[])).unwrap();
    assert_eq!(bench.register.bytes(0, 8), bench.ring.bytes(0, 8));
    assert_eq!(bench.register.bytes(8, 56), [0; 56]);
}

#[test]
fn blue_flame_stops_at_the_size_of_a_half() {
    let mut bench = bench(64, 20, 0, true, 0);
    let segments = [segment(0x1000, 8); 16];
    bench.post(&send(1, &segments[..15])).unwrap();
    assert_eq!(
        bench.register.bytes(0, 256),
        bench.ring.bytes(0, 256),
        "16 units fit"
    );
    bench.post(&send(2, &segments)).unwrap();
    assert_eq!(
        bench.register.bytes(256, 8),
        bench.ring.bytes(256, 8),
        "17 do not"
    );
    assert_eq!(bench.register.bytes(264, 248), [0; 248]);
}

#[test]
fn layouts_that_contradict_themselves_are_refused() {
    let good = bench(8, 1, 0, false, 0).layout;
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
fn short_copies_copy_exactly_what_they_are_told() {
    for length in 1..=SHORT_COPY as usize {
        let from: Vec<u8> = (0..length as u8).map(|byte| byte ^ 0x5a).collect();
        let mut to = vec![0xa5; length + 2];
        // SAFETY: `length` bytes of each, inside their vectors.
        unsafe { copy_short(to.as_mut_ptr().add(1), from.as_ptr(), length) };
        assert_eq!(to[1..=length], from, "{length}");
        assert_eq!((to[0], to[length + 1]), (0xa5, 0xa5), "{length}");
    }
}

/// What libmlx5 would have written, byte by byte.
struct Model {
    ring: Vec<u8>,
    register: Vec<u8>,
    half: usize,
    counter: u32,
    outstanding: VecDeque<Outstanding>,
    exclusive: bool,
}

#[derive(Clone)]
struct Outstanding {
    counter: u32,
    blocks: u32,
    cookie: u64,
    signaled: bool,
}

impl Model {
    fn blocks(&self) -> u32 {
        (self.ring.len() / WQEBB) as u32
    }

    /// Appends one WQE, whose bytes and untouched holes are given from its start.
    fn append(&mut self, request: &SendRequest<'_>, wqe: &[Option<u8>]) {
        let blocks = wqe.len().div_ceil(WQEBB) as u32;
        let used: u32 = self.outstanding.iter().map(|wqe| wqe.blocks).sum();
        assert!(
            used + blocks <= self.blocks(),
            "a WQE in use would be overwritten"
        );
        let start = (self.counter % self.blocks()) as usize * WQEBB;
        for (offset, byte) in wqe.iter().enumerate() {
            let at = (start + offset) % self.ring.len();
            if let Some(byte) = byte {
                self.ring[at] = *byte;
            }
        }
        self.outstanding.push_back(Outstanding {
            counter: self.counter,
            blocks,
            cookie: request.cookie,
            signaled: request.flags.contains(SendFlags::SIGNALED),
        });
        self.counter = self.counter.wrapping_add(blocks);
    }

    /// The doorbell for the last `requests` WQEs.
    fn ring(&mut self, requests: usize, units: usize) {
        let last = self.outstanding.back().unwrap().counter;
        let start = (last % self.blocks()) as usize * WQEBB;
        let copy = self.exclusive && requests == 1 && units > 1 && units <= HALF as usize / 16;
        let length = if copy { units.div_ceil(4) * WQEBB } else { 8 };
        for offset in 0..length {
            self.register[self.half + offset] = self.ring[(start + offset) % self.ring.len()];
        }
        self.half ^= HALF as usize;
    }
}

/// A marker is signalled, may be fenced, and has no segments, whatever it says.
fn as_meant<'a>(request: &SendRequest<'a>) -> SendRequest<'a> {
    match request.op {
        SendOp::Nop => SendRequest {
            flags: request.flags & SendFlags::FENCE | SendFlags::SIGNALED,
            segments: &[],
            ..*request
        },
        _ => *request,
    }
}

fn encode(request: &SendRequest<'_>, counter: u32) -> (Vec<Option<u8>>, usize) {
    let (opcode, imm, remote) = match request.op {
        SendOp::Send => (0x0a, 0, None),
        SendOp::SendImm(imm) => (0x0b, imm, None),
        SendOp::Write { remote_addr, rkey } => (0x08, 0, Some((remote_addr, rkey))),
        SendOp::WriteImm {
            remote_addr,
            rkey,
            imm,
        } => (0x09, imm, Some((remote_addr, rkey))),
        SendOp::Read { remote_addr, rkey } => (0x10, 0, Some((remote_addr, rkey))),
        SendOp::Nop => (0x00, 0, None),
    };
    let mut body = Vec::new();
    if let Some((addr, rkey)) = remote {
        body.extend(addr.to_be_bytes());
        body.extend(rkey.to_be_bytes());
        body.extend([0; 4]);
    }
    let mut body: Vec<Option<u8>> = body.into_iter().map(Some).collect();
    if request.flags.contains(SendFlags::INLINE) && opcode != 0x10 {
        let total: u32 = request.segments.iter().map(|s| s.length).sum();
        if total > 0 {
            body.extend((total | 1 << 31).to_be_bytes().map(Some));
            for s in request.segments {
                let from = core::ptr::with_exposed_provenance::<u8>(s.addr as usize);
                for at in 0..s.length as usize {
                    // SAFETY: inline segments of these tests name live memory.
                    body.push(Some(unsafe { from.add(at).read() }));
                }
            }
            body.resize(body.len().next_multiple_of(16), None);
        }
    } else {
        for s in request.segments.iter().filter(|s| s.length > 0) {
            body.extend(s.length.to_be_bytes().map(Some));
            body.extend(s.lkey.to_be_bytes().map(Some));
            body.extend(s.addr.to_be_bytes().map(Some));
        }
    }
    let units = 1 + body.len() / 16;
    let mut flags = 0;
    for (flag, bit) in [
        (SendFlags::SIGNALED, 8),
        (SendFlags::SOLICITED, 2),
        (SendFlags::FENCE, 0x80),
    ] {
        if request.flags.contains(flag) {
            flags |= bit;
        }
    }
    let mut wqe = Vec::new();
    wqe.extend(((counter & 0xffff) << 8 | opcode).to_be_bytes());
    wqe.extend((QPN << 8 | units as u32).to_be_bytes());
    wqe.extend([0, 0, 0, flags]);
    wqe.extend(imm.to_be_bytes());
    let mut wqe: Vec<Option<u8>> = wqe.into_iter().map(Some).collect();
    wqe.extend(body);
    (wqe, units)
}

/// All sixteen combinations.
fn flags_of(number: u8) -> SendFlags {
    let all = [
        SendFlags::SIGNALED,
        SendFlags::SOLICITED,
        SendFlags::FENCE,
        SendFlags::INLINE,
    ];
    (0..4)
        .filter(|bit| number & 1 << bit != 0)
        .map(|bit| all[bit])
        .collect()
}

#[derive(Clone, Debug)]
enum Op {
    Post(Vec<(u8, u8, Vec<u8>)>),
    Complete(usize),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let request = (
        0u8..6,
        0u8..16,
        prop::collection::vec(prop_oneof![Just(0u8), 1u8..60], 0..4),
    );
    let op = prop_oneof![
        3 => prop::collection::vec(request, 1..5).prop_map(Op::Post),
        2 => (0usize..6).prop_map(Op::Complete),
    ];
    prop::collection::vec(op, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]

    /// Ring bytes, record and register are at every moment what the model says.
    #[test]
    fn every_byte_is_what_libmlx5_would_have_written(
        log in 1u32..6,
        exclusive in any::<bool>(),
        start in prop_oneof![Just(0u32), 0xfff0u32..0x1_0002, u32::MAX - 9..=u32::MAX],
        ops in ops(),
    ) {
        // The longest WQE is two WQEBBs: 2 + 3 segments or 2 + (4 + 92) / 16.
        let mut bench = bench(1 << log, 3, 92, exclusive, start);
        let source = Memory::new(256, 0);
        source.write(0, &(0..=255).collect::<Vec<u8>>());
        let mut model = Model {
            ring: bench.ring.all(),
            register: vec![0; 2 * HALF as usize],
            half: 0,
            counter: start,
            outstanding: VecDeque::new(),
            exclusive,
        };
        let mut cookie = 0;
        for op in ops {
            match op {
                Op::Post(requests) => {
                    let segments: Vec<Vec<Segment>> = requests
                        .iter()
                        .map(|(_, _, lengths)| {
                            lengths
                                .iter()
                                .map(|&l| segment(source.addr(l as usize), l.into()))
                                .collect()
                        })
                        .collect();
                    let requests: Vec<SendRequest<'_>> = requests
                        .iter()
                        .zip(&segments)
                        .map(|((op, flags, _), segments)| {
                            cookie += 1;
                            let (remote_addr, rkey, imm) = (0x1_0000_0001 * cookie, 77, 0x8000_0001);
                            let op = [
                                SendOp::Send,
                                SendOp::SendImm(imm),
                                SendOp::Write { remote_addr, rkey },
                                SendOp::WriteImm { remote_addr, rkey, imm },
                                SendOp::Read { remote_addr, rkey },
                                SendOp::Nop,
                            ][*op as usize];
                            let flags = flags_of(*flags);
                            SendRequest { cookie, op, flags, segments }
                        })
                        .collect();
                    let capacity = bench.producer.capacity() as usize;
                    let mut result = Ok(());
                    let mut units = 0;
                    let mut posted = 0;
                    for request in &requests {
                        let request = &as_meant(request);
                        let length: u32 = request.segments.iter().map(|s| s.length).sum();
                        let inline = request.flags.contains(SendFlags::INLINE)
                            && !matches!(request.op, SendOp::Read { .. });
                        let error = if model.outstanding.len() == capacity {
                            Some(PostError::QueueFull)
                        } else if inline && length > 92 {
                            Some(PostError::InlineTooLong)
                        } else {
                            None
                        };
                        if let Some(error) = error {
                            result = Err(ListError { posted, error });
                            break;
                        }
                        let (wqe, length) = encode(request, model.counter);
                        model.append(request, &wqe);
                        units = length;
                        posted += 1;
                    }
                    prop_assert_eq!(bench.post_list(&requests), result);
                    if posted > 0 {
                        model.ring(posted, units);
                        prop_assert_eq!(bench.record.be32(4), model.counter & 0xffff);
                    }
                    // A refused request may have left bytes in free blocks.
                    let blocks = model.blocks();
                    let ring = bench.ring.all();
                    for wqe in &model.outstanding {
                        for block in 0..wqe.blocks {
                            let at = (wqe.counter.wrapping_add(block) % blocks) as usize * WQEBB;
                            prop_assert_eq!(&ring[at..at + WQEBB], &model.ring[at..at + WQEBB]);
                        }
                    }
                    model.ring = ring;
                    prop_assert_eq!(bench.register.all(), model.register.clone());
                }
                Op::Complete(ahead) => {
                    // The next signalled request, or one further on.
                    let Some(at) = model
                        .outstanding
                        .iter()
                        .enumerate()
                        .filter(|(_, wqe)| wqe.signaled)
                        .map(|(at, _)| at)
                        .take(ahead + 1)
                        .last()
                    else {
                        continue;
                    };
                    let wqe = model.outstanding.drain(..=at).next_back().unwrap();
                    prop_assert_eq!(bench.consumer.retire(wqe.counter as u16).cookie, wqe.cookie);
                }
            }
        }
    }
}
