//! The loop over links in memory, in which a message without a posted receive and a
//! post to a full queue fail the test.

use std::time::Duration;

use dat_engine::Status;

use super::flow::Flow;
use super::meter::Meter;
use super::side::Side;
use super::sides;
use crate::clock::Clock;
use crate::ends::memory_end::{self, Break, MemoryEnd, MemoryLink, SIZE, failed, pair_of};
use crate::ends::payload::Layout;
use crate::ends::{Setup, Stop, Watchdog};
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
    is_numbered: bool,
}

fn connected(operation: Operation, shape: Shape) -> Both {
    connected_of(&setup(operation, shape), shape)
}

fn setup(operation: Operation, shape: Shape) -> Setup {
    let is_taken = operation.takes_receives();
    Setup {
        receives: if is_taken { shape.receives } else { 0 },
        ..memory_end::setup(operation, shape.tx_depth)
    }
}

fn connected_of(setup: &Setup, shape: Shape) -> Both {
    let (operation, receives) = (setup.operation, setup.receives);
    let flow = |link: MemoryLink| {
        let mut flow = Flow::new(link, shape.tx_depth, receives, operation.fetches());
        let size = memory_end::size(operation);
        flow.reset(size, shape.list, shape.moderation);
        flow
    };
    let pair = |_| pair_of(setup);
    let (near, far): (Vec<_>, Vec<_>) = (0..shape.endpoints).map(pair).unzip();
    let side = |links: Vec<MemoryLink>, receives| Side {
        flows: links.into_iter().map(flow).collect(),
        receives,
    };
    let is_taken = operation.takes_receives();
    Both {
        near: side(near, is_taken && shape.both),
        far: side(far, is_taken),
        is_numbered: setup.is_numbered(),
    }
}

fn meter(duration: u64) -> Meter {
    Meter::new(Clock::monotonic(), duration, None)
}

fn phase(of: &mut Both, messages: u64, both: bool, duration: u64) -> Result<[Transfer; 2], Stop> {
    let theirs = if both { messages } else { 0 };
    let mut watchdog = Watchdog::new(LIMIT, None);
    let is_numbered = of.is_numbered;
    let both = [&mut of.near, &mut of.far];
    let phase = match is_numbered {
        true => sides::phase::<MemoryEnd, true>,
        false => sides::phase::<MemoryEnd, false>,
    };
    phase(both, (messages, theirs), &|| meter(duration), &mut watchdog)
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

const OPERATIONS: [Operation; 6] = [
    Operation::Send,
    Operation::Write,
    Operation::WriteImm,
    Operation::Read,
    Operation::FetchAdd,
    Operation::CompareSwap,
];

#[test]
fn every_message_is_sent_and_taken_and_no_receive_queue_is_ever_empty() {
    for shape in shapes() {
        for operation in OPERATIONS {
            // A list posts one request several times.
            if shape.list > 1 && operation.is_numbered() {
                continue;
            }
            let mut both = connected(operation, shape);
            // A warm-up with a number that no list divides, then the measured messages.
            for (messages, sum) in [(7, 7), (205, 212), (0, 212)] {
                let [near, far] = phase(&mut both, messages, shape.both, u64::MAX)
                    .unwrap_or_else(|stop| panic!("{operation:?}, {shape:?}: {stop}"));
                let all = messages * u64::from(shape.endpoints);
                assert_eq!(near.messages, all, "{operation:?}, {shape:?}");
                assert_eq!(far.messages, if shape.both { all } else { 0 });
                assert_eq!(both.near.posted(), sum * u64::from(shape.endpoints));
                if operation.takes_receives() {
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
            // A list posts one request several times.
            if shape.list > 1 && operation.is_numbered() {
                continue;
            }
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

#[test]
fn checked_messages_are_all_sent_and_a_changed_or_older_one_ends_the_run() {
    let operations = OPERATIONS.into_iter().filter(|it| *it != Operation::Write);
    for operation in operations {
        let setup = |shape: Shape| {
            let setup = setup(operation, shape);
            let most = setup.tx_depth.max(setup.receives);
            Setup {
                layout: Layout {
                    slots: most.next_power_of_two(),
                    ..setup.layout
                },
                checks: true,
                ..setup
            }
        };
        for shape in shapes() {
            if shape.list > 1 {
                continue;
            }
            let mut both = connected_of(&setup(shape), shape);
            for messages in [7, 205] {
                let [near, _] = phase(&mut both, messages, shape.both, u64::MAX)
                    .unwrap_or_else(|stop| panic!("{operation:?}, {shape:?}: {stop}"));
                assert_eq!(near.messages, messages * u64::from(shape.endpoints));
            }
        }
        let breaks = match operation.is_atomic() {
            true => vec![Break::Repeated],
            false => vec![Break::Corrupt(9), Break::Stale],
        };
        for how in breaks {
            let mut both = connected_of(&setup(SHAPE), SHAPE);
            both.near.flows[0].link.end.breaks = Some((50, how));
            let stop = phase(&mut both, 1000, false, u64::MAX).unwrap_err();
            let number = match stop {
                Stop::Corrupted { number, .. } | Stop::Value { number, .. } => number,
                other => panic!("{operation:?}: {other:?}"),
            };
            assert_eq!(number, 50, "{operation:?}: {stop}");
        }
    }
}
