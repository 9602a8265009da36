//! The loop over links in memory, in which a message without a posted receive and a
//! post to a full queue fail the test.

use std::time::Duration;

use dat_engine::Status;

use super::flow::Flow;
use super::meter::Meter;
use super::side::Side;
use super::sides;
use crate::clock::Clock;
use crate::ends::memory_end::{Break, MemoryEnd, MemoryLink, SIZE, failed, memory_pair};
use crate::ends::{Stop, Watchdog};
use crate::exchange::Transfer;
use crate::options::Operation;

/// Long enough to find an error that is reported, and short for a test.
const LIMIT: Duration = Duration::from_millis(50);

/// The depths of a run.
#[derive(Clone, Copy, Debug)]
struct Shape {
    tx_depth: u32,
    receives: u32,
    list: u32,
    moderation: u32,
    endpoints: u32,
    both: bool,
}

/// Two connected sides.
struct Both {
    near: Side<MemoryEnd>,
    far: Side<MemoryEnd>,
}

fn connected(operation: Operation, shape: Shape) -> Both {
    let receives = match operation {
        Operation::Send => shape.receives,
        Operation::Write | Operation::Read => 0,
    };
    let flow = |mut link: MemoryLink| {
        // The link has one receive at first.
        for _ in 1..receives {
            link.post_receive().unwrap();
        }
        let reads = operation == Operation::Read;
        let mut flow = Flow::new(link, shape.tx_depth, receives, reads);
        flow.reset(SIZE, shape.list, shape.moderation);
        flow
    };
    let pair = |_| memory_pair(operation, shape.tx_depth);
    let (near, far): (Vec<_>, Vec<_>) = (0..shape.endpoints).map(pair).unzip();
    let side = |links: Vec<MemoryLink>, receives| Side {
        flows: links.into_iter().map(flow).collect(),
        receives,
    };
    let is_send = operation == Operation::Send;
    Both {
        near: side(near, is_send && shape.both),
        far: side(far, is_send),
    }
}

fn meter(duration: u64) -> Meter {
    Meter::new(Clock::monotonic(), duration, None)
}

fn phase(of: &mut Both, messages: u64, both: bool, duration: u64) -> Result<[Transfer; 2], Stop> {
    let theirs = if both { messages } else { 0 };
    let mut watchdog = Watchdog::new(LIMIT, None);
    let both = [&mut of.near, &mut of.far];
    sides::phase(both, (messages, theirs), || meter(duration), &mut watchdog)
}

const SHAPE: Shape = Shape {
    tx_depth: 128,
    receives: 512,
    list: 1,
    moderation: 100,
    endpoints: 1,
    both: false,
};

/// Shapes with small and uneven depths.
fn shapes() -> Vec<Shape> {
    let mut shapes = vec![SHAPE];
    for (tx_depth, receives) in [(1, 1), (2, 1), (1, 2), (3, 7), (16, 4), (4, 16), (5, 2)] {
        for moderation in [1, 2, tx_depth] {
            for (endpoints, both) in [(1, false), (3, false), (1, true), (2, true)] {
                shapes.push(Shape {
                    tx_depth,
                    receives,
                    list: 1,
                    moderation: moderation.min(tx_depth),
                    endpoints,
                    both,
                });
            }
        }
    }
    for (list, tx_depth, receives) in [(4, 4, 4), (4, 9, 5), (8, 64, 8), (2, 3, 3)] {
        for (moderation, both) in [(list, false), (list / 2, true), (1, true)] {
            shapes.push(Shape {
                tx_depth,
                receives,
                list,
                moderation,
                endpoints: 2,
                both,
            });
        }
    }
    shapes
}

const OPERATIONS: [Operation; 3] = [Operation::Send, Operation::Write, Operation::Read];

#[test]
fn every_message_is_sent_and_taken_and_no_receive_queue_is_ever_empty() {
    for shape in shapes() {
        for operation in OPERATIONS {
            let mut both = connected(operation, shape);
            // A warm-up with a number that no list divides, then the measured messages.
            for (messages, sum) in [(7, 7), (205, 212), (0, 212)] {
                let [near, far] = phase(&mut both, messages, shape.both, u64::MAX)
                    .unwrap_or_else(|stop| panic!("{operation:?}, {shape:?}: {stop}"));
                let all = messages * u64::from(shape.endpoints);
                assert_eq!(near.messages, all, "{operation:?}, {shape:?}");
                assert_eq!(far.messages, if shape.both { all } else { 0 });
                assert_eq!(both.near.posted(), sum * u64::from(shape.endpoints));
                if operation == Operation::Send {
                    assert_eq!(both.far.taken(), both.near.posted(), "{shape:?}");
                    assert_eq!(both.near.taken(), both.far.posted(), "{shape:?}");
                }
                assert!(both.near.is_idle() && both.far.is_idle());
            }
        }
    }
}

#[test]
fn a_phase_by_time_ends_with_all_its_messages_complete() {
    for shape in shapes() {
        for operation in OPERATIONS {
            let mut both = connected(operation, shape);
            let [near, far] = phase(&mut both, u64::MAX, shape.both, 100_000)
                .unwrap_or_else(|stop| panic!("{operation:?}, {shape:?}: {stop}"));
            assert_eq!(
                near.messages,
                both.near.posted(),
                "{operation:?}, {shape:?}"
            );
            assert_eq!(far.messages, both.far.posted(), "{operation:?}, {shape:?}");
            // The time is at least that of the phase: 100 µs.
            assert!(near.picoseconds >= 100_000_000, "{near:?}");
            assert!(both.near.is_idle() && both.far.is_idle());
        }
    }
}

#[test]
fn a_failed_request_ends_the_run_even_if_unsignalled() {
    for operation in OPERATIONS {
        let mut both = connected(operation, SHAPE);
        both.near.flows[0].link.end.breaks = Some((50, Break::Status(Status::RetryExceeded)));
        match phase(&mut both, 1000, false, u64::MAX) {
            Err(Stop::Fault(fault)) => assert_eq!(fault, failed(Status::RetryExceeded)),
            other => panic!("{operation:?}: {other:?}"),
        }
    }
}

#[test]
fn a_short_message_ends_the_run_and_a_lost_one_the_timeout() {
    let mut both = connected(Operation::Send, SHAPE);
    both.near.flows[0].link.end.breaks = Some((50, Break::Short));
    let stop = phase(&mut both, 1000, false, u64::MAX).unwrap_err();
    assert!(
        matches!(stop, Stop::Length { expected: SIZE, .. }),
        "{stop:?}"
    );
    let mut both = connected(Operation::Send, SHAPE);
    both.near.flows[0].link.end.breaks = Some((50, Break::Lost));
    let stop = phase(&mut both, 1000, false, u64::MAX).unwrap_err();
    assert_eq!(stop, Stop::Timeout(LIMIT));
}
