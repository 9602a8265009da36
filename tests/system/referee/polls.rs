//! The same CQE bytes, valid or not, give the same result from `ibv_poll_cq` and
//! from the engine, and payload in a CQE is copied to the same place.

use dat_engine::{AtomicOp, Segment, SendFlags, SendOp};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use crate::support::compared_qps::ComparedQps;
use crate::support::cqe_writer::{Cqe, InlinePlace};
use crate::support::device::cases;
use crate::support::libmlx5::{Buffer, Pd, Shape};
use crate::support::operations::{any_op, opcode};
use crate::support::side::Memory;
use crate::support::system::System;
use crate::support::work::{RecvWork, SendWork};

const REQ: u8 = 0;
const RESP_WR_IMM: u8 = 1;
const RESP_SEND: u8 = 2;
const RESP_SEND_IMM: u8 = 3;
const REQ_ERR: u8 = 13;
const RESP_ERR: u8 = 14;
const READ: u8 = 0x10;

const SEGMENTS: usize = 4;

/// Whether CQEs have 128 bytes, and the place of payload in them.
type Form = (bool, InlinePlace);

const SMALL: Form = (false, InlinePlace::Within);
const LARGE: Form = (true, InlinePlace::Before);
const LARGE_WITHIN: Form = (true, InlinePlace::Within);

/// Few CQEs, so that the owner bit flips often.
fn shape(shared: bool, large_cqes: bool) -> Shape {
    Shape {
        send_depth: 8,
        recv_depth: 8,
        shared,
        large_cqes,
        ..Shape::default()
    }
}

/// What the device reports about one request.
#[derive(Clone, Debug)]
struct CqeCase {
    /// Lengths of the request's segments.
    lengths: Vec<u32>,
    wr_id: u64,
    /// The operation of a send.
    op: SendOp,
    /// Index into the opcodes of receives.
    received: usize,
    /// The WQE's opcode as the CQE reports it, which may be wrong.
    sent: u8,
    imm: u32,
    solicited: bool,
    byte_count: u32,
    error: Option<(u8, u8)>,
    /// Payload in the CQE, of as many of the request's bytes as fit.
    inline: bool,
}

fn any_case() -> impl Strategy<Value = CqeCase> {
    let lengths = vec(prop_oneof![1 => Just(0u32), 4 => 1..40u32], 1..=SEGMENTS);
    let sent = select(vec![0x08, 0x09, 0x0a, 0x0b, READ]);
    let known = select(vec![
        1u8, 2, 4, 5, 6, 0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x22,
    ]);
    let error = (prop_oneof![known, any::<u8>()], any::<u8>());
    let error = prop_oneof![2 => Just(None), 1 => error.prop_map(Some)];
    let parts = (
        lengths,
        any::<u64>(),
        (any_op(), 0..3usize),
        sent,
        any::<u32>(),
        any::<bool>(),
    );
    (parts, any::<u32>(), error, any::<bool>()).prop_map(
        |((lengths, wr_id, (op, received), sent, imm, solicited), byte_count, error, inline)| {
            // libmlx5 handles this error itself, as a page fault.
            let error = error.filter(|&error| error != (0x22, 0x93));
            CqeCase {
                lengths,
                wr_id,
                op,
                received,
                sent,
                imm,
                solicited,
                byte_count,
                error,
                inline,
            }
        },
    )
}

impl CqeCase {
    fn segments(&self, memory: &dyn Memory) -> Vec<Segment> {
        let mut at = 0;
        let mut segment = |&length: &u32| {
            let segment = memory.segment(at, length as usize);
            at += length as usize + 3;
            segment
        };
        self.lengths.iter().map(&mut segment).collect()
    }

    /// Returns payload that fits the request and the CQE.
    fn payload(&self, place: InlinePlace) -> Vec<u8> {
        let most = if place == InlinePlace::Within { 32 } else { 64 };
        let len = self.lengths.iter().sum::<u32>().min(most) as usize;
        (1..=len).map(|i| (i as u8).wrapping_mul(37)).collect()
    }

    /// Returns the expected memory, with the payload, if any, in the request's
    /// segments.
    fn scattered(&self, memory: &dyn Memory, inline: bool, place: InlinePlace) -> Vec<u8> {
        let mut expected = vec![0; memory.len()];
        let payload = if inline { self.payload(place) } else { vec![] };
        let mut rest = payload.as_slice();
        for segment in self.segments(memory) {
            let (now, later) = rest.split_at(rest.len().min(segment.length as usize));
            let at = (segment.addr - memory.addr()) as usize;
            expected[at..at + now.len()].copy_from_slice(now);
            rest = later;
        }
        expected
    }

    fn cqe(&self, opcode: u8, place: InlinePlace, inline: bool) -> Cqe {
        let mut cqe = Cqe {
            opcode,
            solicited: self.solicited,
            byte_count: self.byte_count,
            imm: self.imm,
            error: self.error,
            ..Cqe::default()
        };
        if inline {
            let payload = self.payload(place);
            cqe.byte_count = payload.len() as u32;
            cqe.inline = Some((payload, place));
        }
        cqe
    }
}

/// Returns the first difference: offset, found, expected.
fn wrong_byte(found: &[u8], expected: &[u8]) -> Option<(usize, u8, u8)> {
    let pairs = found.iter().zip(expected).enumerate();
    pairs
        .map(|(i, (&a, &b))| (i, a, b))
        .find(|&(_, a, b)| a != b)
}

fn play_sends(
    compared_qps: &mut ComparedQps,
    memory: &dyn Memory,
    (large_cqes, place): Form,
    all: &[CqeCase],
) {
    for case in all {
        let (op, mut case) = (case.op, case.clone());
        if matches!(op, SendOp::Atomic { .. }) {
            case.lengths = vec![AtomicOp::BYTES];
            case.sent = opcode(op);
        }
        let (wr_id, segments) = (case.wr_id, case.segments(memory));
        let work = SendWork {
            wr_id,
            op,
            flags: SendFlags::SIGNALED,
            segments,
        };
        let wqe_counter = compared_qps.next_counter();
        compared_qps
            .send(&[work])
            .0
            .expect("room in the send queue");
        compared_qps.clear_outstanding();
        let result = if case.error.is_some() { REQ_ERR } else { REQ };
        let fills = case.sent == READ || matches!(op, SendOp::Atomic { .. });
        let inline = case.inline && case.error.is_none() && fills;
        let cqe = Cqe {
            wqe_counter,
            sent: case.sent,
            ..case.cqe(result, place, inline)
        };
        let [theirs, ours] = compared_qps.complete(true, &cqe, memory);
        let expected = case.scattered(memory, inline && op.fills_segments(), place);
        assert_eq!(
            wrong_byte(&ours, &expected),
            None,
            "in the memory of {case:?}"
        );
        // For payload of requests in 128-byte CQEs libmlx5 is a reference only
        // since v64. The expectation above follows the device's manual: the
        // payload is in the first 64 bytes of the CQE, or at the start of the
        // completion.
        if !large_cqes || compared_qps.behaviour.large_cqe_answers {
            assert_eq!(
                wrong_byte(&theirs, &expected),
                None,
                "libmlx5's memory of {case:?}"
            );
        }
    }
}

fn play_receives(
    compared_qps: &mut ComparedQps,
    memory: &dyn Memory,
    (_, place): Form,
    all: &[CqeCase],
) {
    for case in all {
        let work = RecvWork {
            wr_id: case.wr_id,
            segments: case.segments(memory),
        };
        compared_qps
            .recv(&[work])
            .0
            .expect("room in the receive queue");
        let wqe_counter = compared_qps.last_receive();
        compared_qps.clear_outstanding();
        let good = [RESP_SEND, RESP_SEND_IMM, RESP_WR_IMM][case.received];
        let opcode = if case.error.is_some() { RESP_ERR } else { good };
        let inline = case.inline && case.error.is_none() && good != RESP_WR_IMM;
        let cqe = Cqe {
            wqe_counter,
            ..case.cqe(opcode, place, inline)
        };
        let [theirs, ours] = compared_qps.complete(false, &cqe, memory);
        let expected = case.scattered(memory, inline, place);
        assert_eq!(
            wrong_byte(&ours, &expected),
            None,
            "in the memory of {case:?}"
        );
        assert_eq!(
            wrong_byte(&theirs, &expected),
            None,
            "libmlx5's memory of {case:?}"
        );
    }
}

/// Runs both kinds on new queue pairs and shared memory for the payload.
fn play(shared: bool, form: Form, start: u32, sends: &[CqeCase], receives: &[CqeCase]) {
    let system = System::new();
    let mut compared_qps = system.compared_qps(shape(shared, form.0));
    compared_qps.advance_to(start);
    let memory = Buffer::new(&Pd::new(system.context()), 1024);
    play_sends(&mut compared_qps, &memory, form, sends);
    play_receives(&mut compared_qps, &memory, form, receives);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(60), ..ProptestConfig::default() })]

    #[test]
    fn completions_give_the_same_result(
        shared in any::<bool>(),
        form in select(vec![SMALL, LARGE, LARGE_WITHIN]),
        start in prop_oneof![0..40u32, 65_500..65_600u32],
        sends in vec(any_case(), 0..40),
        receives in vec(any_case(), 0..40),
    ) {
        play(shared, form, start, &sends, &receives);
    }
}

#[test]
fn every_syndrome_gives_the_same_result() {
    let system = System::new();
    let mut compared_qps = system.compared_qps(shape(false, false));
    let memory = Buffer::new(&Pd::new(system.context()), 1024);
    let case = |syndrome: u8| CqeCase {
        lengths: vec![8],
        wr_id: 0x1234_5678_9abc_def0 ^ u64::from(syndrome),
        op: SendOp::Send,
        received: 0,
        sent: 0x0a,
        imm: 0,
        solicited: false,
        byte_count: 0,
        error: Some((syndrome, syndrome ^ 0xff)),
        inline: false,
    };
    let all: Vec<_> = (0..=255)
        .map(case)
        .filter(|case| case.error != Some((0x22, 0x93)))
        .collect();
    play_sends(&mut compared_qps, &memory, SMALL, &all);
    play_receives(&mut compared_qps, &memory, SMALL, &all);
}

/// More payload in the CQE than the receive has room for: an error on both sides,
/// and neither writes past a segment.
#[test]
fn payload_that_does_not_fit_is_a_length_error() {
    let system = System::new();
    let mut compared_qps = system.compared_qps(shape(false, false));
    let memory = Buffer::new(&Pd::new(system.context()), 1024);
    for lengths in [[1, 1, 1, 1], [7, 8, 9, 7], [28, 1, 1, 1]] {
        let mut at = 0;
        let mut segment = |length: usize| {
            at += 50;
            memory.segment(at, length)
        };
        let segments: Vec<_> = lengths.map(&mut segment).into();
        compared_qps
            .recv(&[RecvWork { wr_id: 5, segments }])
            .0
            .expect("room");
        let wqe_counter = compared_qps.last_receive();
        compared_qps.clear_outstanding();
        let payload: Vec<u8> = (1..=32).collect();
        let inline = Some((payload, InlinePlace::Within));
        let cqe = Cqe {
            opcode: RESP_SEND,
            wqe_counter,
            byte_count: 32,
            inline,
            ..Cqe::default()
        };
        let [theirs, ours] = compared_qps.complete(false, &cqe, &memory);
        assert_eq!(
            wrong_byte(&ours, &theirs),
            None,
            "of 32 bytes into {lengths:?}"
        );
    }
}

/// Completions that name another receive than the oldest, as on devices that use
/// receives out of order: successful, failed, and with payload. libmlx5 before
/// v55 reports the oldest receive.
#[test]
fn a_completion_reports_the_receive_that_it_names() {
    let system = System::new();
    let mut compared_qps = system.compared_qps(shape(false, false));
    let memory = Buffer::new(&Pd::new(system.context()), 1024);
    let kinds = [
        (RESP_SEND, None, false),
        (RESP_ERR, Some((5, 0)), false),
        (RESP_SEND, None, true),
        (RESP_WR_IMM, None, false),
    ];
    for round in 0..40_usize {
        let first = compared_qps.received();
        let wr_id = |at: usize| (100 * round + at) as u64;
        for at in 0..kinds.len() {
            let segments = vec![memory.segment(32 * at, 32)];
            let wr_id = wr_id(at);
            let posted = compared_qps.recv(&[RecvWork { wr_id, segments }]).0;
            posted.expect("as many are completed as posted");
        }
        compared_qps.clear_outstanding();
        for (done, (opcode, error, inline)) in kinds.into_iter().enumerate() {
            // 5 and 4 have no common divisor, so each is named once.
            let named = (5 * done + round) % kinds.len();
            let payload = [round as u8 + 1; 20];
            let cqe = Cqe {
                opcode,
                error,
                wqe_counter: (first as usize + named) as u16,
                byte_count: 20,
                inline: inline.then(|| (payload.to_vec(), InlinePlace::Within)),
                ..Cqe::default()
            };
            let ([mut theirs, ours], [_, memory]) = compared_qps.completed(false, &cqe, &memory);
            assert_eq!(ours.wr_id, wr_id(named));
            assert_eq!(memory[32 * named..][..20] == payload, inline);
            let oldest = if compared_qps.behaviour.named_receive {
                named
            } else {
                done
            };
            assert_eq!(theirs.wr_id, wr_id(oldest));
            theirs.wr_id = ours.wr_id;
            assert_eq!(
                ours, theirs,
                "the engine's completion, libmlx5's completion"
            );
        }
    }
}

#[test]
fn an_empty_queue_is_empty_for_both_in_every_lap() {
    let system = System::new();
    let mut compared_qps = system.compared_qps(shape(false, false));
    for _ in 0..200 {
        for compared_qp in [&mut compared_qps.theirs, &mut compared_qps.ours] {
            assert_eq!(compared_qp.side.poll_send(), None);
            assert_eq!(compared_qp.side.poll_recv(), None);
        }
        compared_qps.advance_to(compared_qps.position() + 1);
    }
}
