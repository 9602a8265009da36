//! Atomic operations between two ends: what they leave in the peer's memory, what they
//! bring back, and which are refused.

use dat_engine::{AtomicOp, PostError, Segment, SendFlags, SendOp, SendRequest, Status};

use crate::support::fixture::Fixture;
use crate::support::libmlx5::{Link, Shape};
use crate::support::pair::{Pair, with_engine};
use crate::support::system::System;
use crate::support::work::SendWork;

/// Where the peer's 64 bits are, and where the bits before go.
const THERE: usize = 128;
const HERE: usize = 40;
const KEPT: [u8; 8] = [0x77; 8];

fn work(wr_id: u64, op: SendOp, segment: Segment) -> SendWork {
    SendWork {
        wr_id,
        op,
        flags: SendFlags::SIGNALED,
        segments: vec![segment],
    }
}

fn between_all(case: impl Fn(&mut Pair)) {
    let drivers = with_engine(&System::new());
    for &drivers in drivers {
        println!("{drivers:?}");
        let link = Link::default();
        case(&mut Pair::new(
            System::new(),
            drivers,
            Shape::default(),
            &link,
        ));
    }
}

/// The first end posts an atomic operation on `before` in the peer's memory. Returns the
/// bits that came back, and those in the peer's memory.
fn executed(pair: &mut Pair, op: AtomicOp, before: u64) -> [u64; 2] {
    let number = |bytes: Vec<u8>| u64::from_ne_bytes(bytes.try_into().expect("8 bytes"));
    pair[1].memory().write(THERE, &before.to_ne_bytes());
    pair[1].memory().write(THERE + 8, &KEPT);
    pair[0].memory().write(HERE + 8, &KEPT);
    let segment = pair[0].memory().segment(HERE, AtomicOp::BYTES as usize);
    let there = pair[1].memory();
    let op = SendOp::Atomic {
        remote_addr: there.addr() + THERE as u64,
        rkey: there.rkey(),
        op,
    };
    pair[0].send(work(7, op, segment));
    pair.system.after_doorbell();
    pair.system.run();
    let answers = pair[0].send_answers(1);
    assert_eq!(answers.len(), 1);
    let answer = &answers[0];
    assert_eq!((answer.wr_id, answer.status), (7, OK));
    assert_eq!(answer.byte_len, Some(AtomicOp::BYTES));
    assert_eq!(pair[0].memory().read(HERE + 8, 8), KEPT);
    assert_eq!(pair[1].memory().read(THERE + 8, 8), KEPT);
    [
        number(pair[0].memory().read(HERE, 8)),
        number(pair[1].memory().read(THERE, 8)),
    ]
}

const OK: u32 = Status::Success.ibv_wc_status();

#[test]
fn fetch_and_add_returns_the_bits_before_and_wraps() {
    between_all(|pair| {
        for (before, add) in [(0x0102_0304_0506_0708, 0x10), (u64::MAX - 1, 5)] {
            let op = AtomicOp::FetchAdd(add);
            let after = before.wrapping_add(add);
            assert_eq!(executed(pair, op, before), [before, after]);
        }
    });
}

#[test]
fn compare_and_swap_replaces_only_equal_bits() {
    between_all(|pair| {
        let (before, swap) = (0x1122_3344_5566_7788, 0x99aa_bbcc_ddee_ff00);
        for (compare, after) in [(before, swap), (before ^ 1, before), (!before, before)] {
            let op = AtomicOp::CompareSwap { compare, swap };
            assert_eq!(executed(pair, op, before), [before, after]);
        }
    });
}

#[test]
fn memory_without_the_right_refuses_atomic_operations() {
    between_all(|pair| {
        let read_only = pair[1].read_only_memory();
        let op = SendOp::Atomic {
            remote_addr: read_only.addr(),
            rkey: read_only.rkey(),
            op: AtomicOp::FetchAdd(1),
        };
        let segment = pair[0].memory().segment(HERE, AtomicOp::BYTES as usize);
        pair[0].send(work(7, op, segment));
        pair.system.after_doorbell();
        pair.system.run();
        let answers = pair[0].send_answers(1);
        let status = Status::RemoteAccess.ibv_wc_status();
        assert_eq!((answers[0].wr_id, answers[0].status), (7, status));
    });
}

/// Both data paths refuse the same, and post nothing.
#[test]
fn unaligned_and_short_memory_is_refused_at_the_post() {
    let fixture = Fixture::new(64);
    let mut ends = fixture.pair(false);
    let has = fixture.system.device.limits().atomics;
    let refusal = |error| if has { error } else { PostError::NoAtomics };
    let target = fixture.segment(1).addr;
    let rkey = fixture.buffer.region().rkey();
    let part = |length| Segment {
        length,
        ..fixture.segment(0)
    };
    for (remote_addr, segments) in [
        (target + 4, vec![part(8)]),
        (target, vec![part(7)]),
        (target, vec![part(16)]),
        (target, vec![part(4); 2]),
        (target, vec![]),
    ] {
        let request = SendRequest {
            wr_id: 1,
            op: SendOp::Atomic {
                remote_addr,
                rkey,
                op: AtomicOp::FetchAdd(1),
            },
            flags: SendFlags::SIGNALED,
            segments: &segments,
        };
        // SAFETY: the buffer outlives the endpoints.
        let posted = unsafe { ends[0].post_send(&request) };
        let expected = match segments.len() {
            // The queue's limit of segments may be 1.
            2 if posted == Err(PostError::TooManySegments) => posted,
            _ => Err(refusal(PostError::BadAtomic)),
        };
        assert_eq!(posted, expected, "{segments:?}");
    }
    assert!(ends[0].sends_idle());
}
