//! The send ring against a model that writes single bytes, as `mlx5dv.h` and
//! libmlx5's `post_send` put them.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

/// The bytes that libmlx5 would have written.
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
    wr_id: u64,
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
            wr_id: request.wr_id,
            signaled: request.flags.contains(SendFlags::SIGNALED),
        });
        self.counter = self.counter.wrapping_add(blocks);
    }

    /// Writes the doorbell for the last `requests` WQEs.
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

/// Returns the request as it is executed: a marker is always signalled and has
/// no segments; of its flags only the fence counts.
fn normalised<'a>(request: &SendRequest<'a>) -> SendRequest<'a> {
    match request.op {
        SendOp::Nop => SendRequest {
            flags: request.flags & SendFlags::FENCE | SendFlags::SIGNALED,
            segments: &[],
            ..*request
        },
        _ => *request,
    }
}

/// Returns the opcode of an atomic operation and the words of its segment, of which the device
/// ignores one.
fn operands(op: AtomicOp) -> (u32, [Option<u64>; 2]) {
    match op {
        AtomicOp::CompareSwap { compare, swap } => (0x11, [Some(swap), Some(compare)]),
        AtomicOp::FetchAdd(add) => (0x12, [Some(add), None]),
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
        SendOp::Atomic {
            remote_addr,
            rkey,
            op,
        } => (operands(op).0, 0, Some((remote_addr, rkey))),
        SendOp::Nop => (0x00, 0, None),
    };
    let mut body = Vec::new();
    if let Some((addr, rkey)) = remote {
        body.extend(addr.to_be_bytes());
        body.extend(rkey.to_be_bytes());
        body.extend([0; 4]);
    }
    let mut body: Vec<Option<u8>> = body.into_iter().map(Some).collect();
    if let SendOp::Atomic { op, .. } = request.op {
        for word in operands(op).1 {
            let bytes = word.map(u64::to_be_bytes);
            body.extend((0..8).map(|at| bytes.map(|bytes| bytes[at])));
        }
    }
    if request.flags.contains(SendFlags::INLINE) && opcode & 0x10 == 0 {
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

/// Returns one of all sixteen combinations.
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
        0u8..8,
        0u8..16,
        prop_oneof![
            3 => prop::collection::vec(prop_oneof![Just(0u8), 1u8..60], 0..4),
            1 => Just(vec![8u8]),
        ],
    );
    let op = prop_oneof![
        3 => prop::collection::vec(request, 1..5).prop_map(Op::Post),
        2 => (0usize..6).prop_map(Op::Complete),
    ];
    prop::collection::vec(op, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]

    /// After every step, the ring bytes, the record and the register equal
    /// those of the model.
    #[test]
    fn every_byte_is_what_libmlx5_would_have_written(
        log in 1u32..6,
        exclusive in any::<bool>(),
        start in prop_oneof![Just(0u32), 0xfff0u32..0x1_0002, u32::MAX - 9..=u32::MAX],
        ops in ops(),
    ) {
        // The longest WQE is two WQEBBs: 2 + 3 segments or 2 + (4 + 92) / 16.
        let mut fixture = fixture(1 << log, 3, 92, exclusive, start);
        let source = Memory::new(256, 0);
        source.write(0, &(0..=255).collect::<Vec<u8>>());
        let mut model = Model {
            ring: fixture.ring.all(),
            register: vec![0; 2 * HALF as usize],
            half: 0,
            counter: start,
            outstanding: VecDeque::new(),
            exclusive,
        };
        let mut wr_id = 0;
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
                            wr_id += 1;
                            let (remote_addr, rkey, imm) = (0x1_0000_0001 * wr_id, 77, 0x8000_0001);
                            let number = 0x0123_4567_89ab_cdef_u64.wrapping_mul(wr_id);
                            let atomic = |op| SendOp::Atomic {
                                remote_addr: remote_addr & !3,
                                rkey,
                                op,
                            };
                            let op = [
                                SendOp::Send,
                                SendOp::SendImm(imm),
                                SendOp::Write { remote_addr, rkey },
                                SendOp::WriteImm { remote_addr, rkey, imm },
                                SendOp::Read { remote_addr, rkey },
                                SendOp::Nop,
                                atomic(AtomicOp::FetchAdd(number)),
                                atomic(AtomicOp::CompareSwap { compare: number, swap: !number }),
                            ][*op as usize];
                            let flags = flags_of(*flags);
                            SendRequest { wr_id, op, flags, segments }
                        })
                        .collect();
                    let capacity = fixture.producer.capacity() as usize;
                    let mut result = Ok(());
                    let mut units = 0;
                    let mut posted = 0;
                    for request in &requests {
                        let request = &normalised(request);
                        let length: u32 = request.segments.iter().map(|s| s.length).sum();
                        let inline = request.flags.contains(SendFlags::INLINE)
                            && !request.op.fills_segments();
                        let lengths: Vec<u32> = request.segments.iter().map(|s| s.length).collect();
                        let is_bad = matches!(
                            request.op,
                            SendOp::Atomic { remote_addr, .. }
                                if lengths != [8] || remote_addr % 8 != 0
                        );
                        let error = if model.outstanding.len() == capacity {
                            Some(PostError::QueueFull)
                        } else if inline && length > 92 {
                            Some(PostError::InlineTooLong)
                        } else if is_bad {
                            Some(PostError::BadAtomic)
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
                    prop_assert_eq!(fixture.post_list(&requests), result);
                    if posted > 0 {
                        model.ring(posted, units);
                        prop_assert_eq!(fixture.record.be32(4), model.counter & 0xffff);
                    }
                    // A refused request may have left bytes in free blocks.
                    let blocks = model.blocks();
                    let ring = fixture.ring.all();
                    for wqe in &model.outstanding {
                        for block in 0..wqe.blocks {
                            let at = (wqe.counter.wrapping_add(block) % blocks) as usize * WQEBB;
                            prop_assert_eq!(&ring[at..at + WQEBB], &model.ring[at..at + WQEBB]);
                        }
                    }
                    model.ring = ring;
                    prop_assert_eq!(fixture.register.all(), model.register.clone());
                }
                Op::Complete(ahead) => {
                    // The next signalled request, or a later one.
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
                    prop_assert_eq!(fixture.retire(wqe.counter as u16).wr_id, wqe.wr_id);
                }
            }
        }
    }
}
