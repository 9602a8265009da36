//! The measuring loops over simulated links in memory: counts, order and error
//! handling.

use std::time::Duration;

use dat_engine::Status;

use super::arrival::Method;
use super::closed::{self, OtherSide, Remote, Responder};
use super::messages::{Sends, Writes, with_messages};
use super::meter::Meter;
use super::open;
use super::pass::{Kind, Recording, Schedule};
use super::side::{Side, Turn};
use crate::clock::Clock;
use crate::ends::memory_end::{self, Break, MemoryEnd, SIZE, failed, pair_of};
use crate::ends::payload::Layout;
use crate::ends::{Setup, Stop, Watchdog};
use crate::options::Operation;
use crate::report::Goal;
use crate::stats::timeline::Timeline;
use crate::stats::{Reported, Samples};

/// An operation, and how a write is noticed.
type Messages = (Operation, Kind);

const SEND: Messages = (Operation::Send, Kind::Receive);
const POLLED: Messages = (Operation::Write, Kind::Write(Method::LastByte));
const BEHIND: Messages = (Operation::Write, Kind::Write(Method::SendBehind));
const IMMEDIATE: Messages = (Operation::WriteImm, Kind::Receive);
const READ: Messages = (Operation::Read, Kind::Fetch);
const ADD: Messages = (Operation::FetchAdd, Kind::Fetch);
const SWAP: Messages = (Operation::CompareSwap, Kind::Fetch);
const ALL: [Messages; 7] = [SEND, POLLED, BEHIND, IMMEDIATE, READ, ADD, SWAP];

/// Returns the properties of ends whose send queues have room for this many messages.
fn setup((operation, kind): Messages, depth: u32) -> Setup {
    let requests = if (operation, kind) == BEHIND { 2 } else { 1 };
    memory_end::setup(operation, requests * depth)
}

type Sides = Vec<Side<MemoryEnd>>;

/// Returns two sides, with three endpoints each if those take turns.
fn pair(setup: &Setup, depth: u32) -> (Sides, Sides) {
    let side = |link| {
        let mut side = Side::new(link, depth);
        side.prepare(memory_end::size(setup.operation));
        side
    };
    let endpoints = if setup.takes_turns { 3 } else { 1 };
    let pairs = (0..endpoints).map(|_| pair_of(setup));
    pairs.map(|(one, two)| (side(one), side(two))).unzip()
}

/// Long enough for both sides to check for errors once, so that a reported
/// error is found before the timeout.
const LIMIT: Duration = Duration::from_millis(50);

fn short_watchdog() -> Watchdog<'static> {
    Watchdog::new(LIMIT, None)
}

/// A run in one thread. Returns the numbers of samples, of messages sent, and
/// of messages answered.
fn run(
    messages: Messages,
    depth: u32,
    breaks: Option<(u64, Break)>,
    answers: bool,
) -> Result<(u64, u64, u64), Stop> {
    run_of(&setup(messages, depth), messages.1, depth, breaks, answers)
}

fn run_of(
    setup: &Setup,
    kind: Kind,
    depth: u32,
    breaks: Option<(u64, Break)>,
    answers: bool,
) -> Result<(u64, u64, u64), Stop> {
    let (mut near, mut far) = pair(setup, depth);
    near[0].link.end.breaks = breaks;
    let clock = Clock::monotonic();
    let mut samples = Samples::new(&clock, Reported::HalfRoundTrip);
    let mut timeline = Timeline::new(clock, 1, 0);
    let times = (&mut samples, &mut timeline);
    let mut meter = Meter::new(clock, Goal::Iterations(1000), 100, times);
    let (near, watchdog, mut answered) = (&mut near, &mut short_watchdog(), 0);
    with_messages!(kind, setup.is_numbered(), M => {
        let mut far = Responder::<M, _>::new(&mut far, short_watchdog());
        if answers {
            closed::measure::<M, _>(near, &mut far, &mut meter, watchdog)?;
            answered = far.answered;
        } else {
            closed::measure::<M, _>(near, &mut Remote, &mut meter, watchdog)?;
        }
    });
    let sent = meter.round_trips();
    Ok((samples.count(), sent, answered))
}

#[test]
fn every_message_is_answered_and_sampled() {
    for depth in [1, 2, 3, 7, 64] {
        for messages in [SEND, POLLED, BEHIND, IMMEDIATE] {
            assert_eq!(run(messages, depth, None, true), Ok((1000, 1100, 1100)));
        }
    }
    for messages in [READ, ADD, SWAP] {
        assert_eq!(run(messages, 1, None, true), Ok((1000, 1100, 0)));
    }
}

#[test]
fn a_failed_request_ends_the_run_even_if_unsignalled() {
    let breaks = Some((150, Break::Status(Status::RetryExceeded)));
    for kind in ALL {
        for depth in [1, 64] {
            match run(kind, depth, breaks, true) {
                Err(Stop::Fault(fault)) => assert_eq!(fault, failed(Status::RetryExceeded)),
                other => panic!("{kind:?} at depth {depth}: {other:?}"),
            }
        }
    }
}

#[test]
fn a_message_of_unexpected_length_ends_the_run() {
    for kind in [SEND, IMMEDIATE, READ] {
        let stop = run(kind, 1, Some((150, Break::Short)), true).unwrap_err();
        assert!(
            matches!(stop, Stop::Length { expected: SIZE, .. }),
            "{stop:?}"
        );
    }
}

#[test]
fn a_lost_message_ends_the_run_after_the_timeout() {
    let lost = Some((150, Break::Lost));
    for kind in ALL {
        assert_eq!(run(kind, 1, lost, true), Err(Stop::Timeout(LIMIT)));
    }
    assert_eq!(run(SEND, 1, None, false), Err(Stop::Timeout(LIMIT)));
    assert_eq!(run(POLLED, 1, None, false), Err(Stop::Timeout(LIMIT)));
}

#[test]
fn a_responder_sends_nothing_before_a_message() {
    let (_near, mut far) = pair(&setup(POLLED, 1), 1);
    let mut far = Responder::<Writes<false, false>, _>::new(&mut far, short_watchdog());
    assert_eq!(far.step(), Ok(false));
    assert_eq!(far.answered, 0);
}

#[test]
fn a_responder_waits_for_the_send_behind_a_write() {
    let (mut near, mut far) = pair(&setup(BEHIND, 1), 1);
    let mut far = Responder::<Writes<true, false>, _>::new(&mut far, short_watchdog());
    near[0].link.write_sequence::<false>(1);
    near[0].link.post::<false>(1, false).unwrap();
    // The byte is there, and is not looked at.
    assert!(far.sides[0].link.has_sequence::<false>(1));
    assert_eq!(far.step(), Ok(false));
    near[0].link.post_empty(true).unwrap();
    assert_eq!(far.step(), Ok(true));
    assert_eq!(far.answered, 1);
    assert!(near[0].link.has_sequence::<false>(1));
}

#[test]
fn a_send_that_overtakes_its_write_ends_the_run() {
    let (mut near, mut far) = pair(&setup(BEHIND, 1), 1);
    let mut far = Responder::<Writes<true, false>, _>::new(&mut far, short_watchdog());
    near[0].link.post_empty(true).unwrap();
    assert_eq!(far.step(), Err(Stop::Overtaken));
}

/// A run on schedule, with `warmed` messages before it. Returns what it recorded,
/// and the number of messages.
fn on_schedule(
    messages: Messages,
    depth: u32,
    interval: f64,
    limit: u64,
) -> Result<(Recording, u64), Stop> {
    let setup = Setup {
        receives: depth,
        ..setup(messages, depth)
    };
    on_schedule_of(&setup, messages.1, depth, interval, limit)
}

fn on_schedule_of(
    setup: &Setup,
    kind: Kind,
    depth: u32,
    interval: f64,
    limit: u64,
) -> Result<(Recording, u64), Stop> {
    // Checked messages and atomic operations count from 1.
    let is_counted = kind == Kind::Fetch || setup.checks;
    let first = Turn {
        endpoint: 0,
        number: if is_counted { 1 } else { 301 },
    };
    let (mut near, mut far) = pair(setup, depth);
    let clock = Clock::monotonic();
    let samples = || Samples::new(&clock, Reported::FullRoundTrip);
    let mut recording = Recording::new(samples, Timeline::new(clock, 1, 0));
    let schedule = Schedule {
        clock,
        interval,
        count: 1000,
        limit,
    };
    let watchdog = &mut short_watchdog();
    let sent = with_messages!(kind, setup.is_numbered(), M => {
        let mut far = Responder::<M, _>::new(&mut far, short_watchdog());
        far.next = first;
        let run = &mut recording;
        open::measure::<M, _>(&mut near, &mut far, &schedule, first, run, watchdog)
    })?;
    Ok((recording, sent))
}

#[test]
fn an_open_loop_answers_every_message_and_records_both_times() {
    for kind in ALL {
        for depth in [1, 2, 7] {
            let (run, sent) = on_schedule(kind, depth, 100.0, u64::MAX).unwrap();
            assert_eq!(sent, 1000, "{kind:?} {depth}");
            assert_eq!((run.samples.count(), run.service.count()), (1000, 1000));
            assert_eq!((run.pace.due, run.pace.sent), (1000, 1000));
            // A message is never sent before it is due.
            assert!(run.samples.mean() >= run.service.mean(), "{kind:?} {depth}");
            assert!(run.samples.min() >= run.service.min(), "{kind:?} {depth}");
        }
    }
}

#[test]
fn a_sender_that_cannot_keep_its_rate_falls_behind() {
    for kind in ALL {
        // All messages are due at once.
        let (run, sent) = on_schedule(kind, 4, 0.0, u64::MAX).unwrap();
        assert_eq!((sent, run.pace.late), (1000, 1000), "{kind:?}");
        assert!(run.pace.final_lag > 0 && run.pace.final_lag <= run.pace.longest_lag);
        // The last response time has the whole run in it.
        assert!(run.samples.max() > run.service.quantile(0.5), "{kind:?}");
        // Without time, not all messages are sent, and those are answered.
        let (run, sent) = on_schedule(kind, 4, 0.0, 0).unwrap();
        assert!(sent < 1000, "{kind:?}: {sent}");
        assert_eq!((run.pace.due, run.pace.sent), (1000, sent));
        assert_eq!(run.samples.count(), sent);
        assert!(run.pace.fell_behind(1.0));
    }
}

/// The properties of checked messages, with a slot for each in flight and one more.
fn checked(messages: Messages, depth: u32) -> Setup {
    let setup = setup(messages, depth);
    Setup {
        layout: Layout {
            slots: (setup.tx_depth + 1).next_power_of_two(),
            ..setup.layout
        },
        checks: true,
        ..setup
    }
}

#[test]
fn checked_messages_are_answered_in_both_loops() {
    for messages in ALL {
        for segments in [1, 3] {
            if segments > 1 && messages.0.is_atomic() {
                continue;
            }
            let setup = Setup {
                segments,
                ..checked(messages, 1)
            };
            let (samples, sent, _) = run_of(&setup, messages.1, 1, None, true).unwrap();
            assert_eq!((samples, sent), (1000, 1100), "{messages:?}");
            let setup = Setup {
                segments,
                receives: 5,
                ..checked(messages, 5)
            };
            let (run, sent) = on_schedule_of(&setup, messages.1, 5, 100.0, u64::MAX).unwrap();
            assert_eq!((run.samples.count(), sent), (1000, 1000), "{messages:?}");
        }
        let setup = Setup {
            takes_turns: true,
            ..checked(messages, 2)
        };
        let (samples, sent, _) = run_of(&setup, messages.1, 2, None, true).unwrap();
        assert_eq!((samples, sent), (1000, 1100), "{messages:?}");
        let setup = Setup {
            receives: 2,
            ..setup
        };
        let (run, sent) = on_schedule_of(&setup, messages.1, 2, 100.0, u64::MAX).unwrap();
        assert_eq!((run.samples.count(), sent), (1000, 1000), "{messages:?}");
    }
}

#[test]
fn a_changed_byte_ends_the_run_and_is_named() {
    for messages in [SEND, POLLED, BEHIND, IMMEDIATE, READ] {
        let breaks = Some((150, Break::Corrupt(17)));
        let stop = run_of(&checked(messages, 1), messages.1, 1, breaks, true).unwrap_err();
        let Stop::Corrupted { number, mismatch } = stop else {
            panic!("{messages:?}: {stop:?}");
        };
        // The byte that was sent, with one bit changed.
        let changed = mismatch.expected ^ mismatch.found;
        assert_eq!((number, mismatch.offset, changed), (150, 17, 0x80));
        let said = stop.to_string();
        assert!(said.starts_with("message 150: byte 17 is 0x"), "{said}");
    }
}

#[test]
fn an_older_message_in_the_memory_is_found() {
    for messages in [SEND, IMMEDIATE, READ] {
        let breaks = Some((150, Break::Stale));
        let stop = run_of(&checked(messages, 1), messages.1, 1, breaks, true).unwrap_err();
        let is_found =
            matches!(stop, Stop::Corrupted { number: 150, mismatch } if mismatch.offset == 0);
        assert!(is_found, "{messages:?}: {stop:?}");
    }
}

#[test]
fn endpoints_take_turns() {
    let setup = Setup {
        takes_turns: true,
        ..checked(SEND, 1)
    };
    let (mut near, mut far) = pair(&setup, 1);
    // The 150th message of the first of three endpoints.
    near[0].link.end.breaks = Some((150, Break::Corrupt(3)));
    let clock = Clock::monotonic();
    let mut samples = Samples::new(&clock, Reported::HalfRoundTrip);
    let mut timeline = Timeline::new(clock, 1, 0);
    let times = (&mut samples, &mut timeline);
    let mut meter = Meter::new(clock, Goal::Iterations(1000), 0, times);
    let mut far = Responder::<Sends<true>, _>::new(&mut far, short_watchdog());
    let (near, watchdog) = (&mut near, &mut short_watchdog());
    let stop = closed::measure::<Sends<true>, _>(near, &mut far, &mut meter, watchdog);
    let is_found = matches!(stop, Err(Stop::Corrupted { number: 150, .. }));
    assert!(is_found, "{stop:?}");
    assert_eq!(far.answered, 149 * 3 + 1);
}

/// Also of messages that are not checked otherwise.
#[test]
fn an_unexpected_value_ends_the_run() {
    for (messages, expected) in [(IMMEDIATE, 150), (ADD, 149), (SWAP, 149)] {
        let breaks = Some((150, Break::Repeated));
        let stop = run(messages, 1, breaks, true).unwrap_err();
        let is_found = matches!(stop, Stop::Value { number: 150, expected: it, found, .. } if it == expected && found == expected - 1);
        assert!(is_found, "{messages:?}: {stop:?}");
    }
}
