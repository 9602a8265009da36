//! The measuring loops over simulated links in memory: counts, order and error
//! handling.

use std::time::Duration;

use dat_engine::Status;

use super::arrival::Method;
use super::closed::{self, OtherSide, Remote, Responder};
use super::messages::{Writes, with_messages};
use super::meter::Meter;
use super::open;
use super::pass::{Kind, Recording, Schedule};
use super::side::Side;
use crate::clock::Clock;
use crate::ends::memory_end::{Break, MemoryEnd, SIZE, failed, memory_pair};
use crate::ends::{Stop, Watchdog};
use crate::options::Operation;
use crate::report::Goal;
use crate::stats::{Reported, Samples};

const POLLED: Kind = Kind::Write(Method::LastByte);
const BEHIND: Kind = Kind::Write(Method::SendBehind);

fn pair(kind: Kind, depth: u32) -> (Side<MemoryEnd>, Side<MemoryEnd>) {
    let (operation, queue) = match kind {
        Kind::Send => (Operation::Send, depth),
        POLLED => (Operation::Write, depth),
        BEHIND => (Operation::Write, 2 * depth),
        Kind::Read => (Operation::Read, depth),
    };
    let side = |link| {
        let mut side = Side::new(link, depth);
        side.prepare(SIZE);
        side
    };
    let (one, two) = memory_pair(operation, queue);
    (side(one), side(two))
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
    kind: Kind,
    depth: u32,
    breaks: Option<(u64, Break)>,
    answers: bool,
) -> Result<(u64, u64, u64), Stop> {
    let (mut near, mut far) = pair(kind, depth);
    near.link.end.breaks = breaks;
    let clock = Clock::monotonic();
    let mut samples = Samples::new(&clock, Reported::HalfRoundTrip);
    let mut meter = Meter::new(clock, Goal::Iterations(1000), 100, &mut samples);
    let (near, watchdog, mut answered) = (&mut near, &mut short_watchdog(), 0);
    with_messages!(kind, M => {
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
        assert_eq!(run(Kind::Send, depth, None, true), Ok((1000, 1100, 1100)));
        for kind in [POLLED, BEHIND] {
            assert_eq!(run(kind, depth, None, true), Ok((1000, 1100, 1100)));
        }
    }
    assert_eq!(run(Kind::Read, 1, None, true), Ok((1000, 1100, 0)));
}

#[test]
fn a_failed_request_ends_the_run_even_if_unsignalled() {
    let breaks = Some((150, Break::Status(Status::RetryExceeded)));
    for kind in OPERATIONS {
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
    for kind in [Kind::Send, Kind::Read] {
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
    for kind in OPERATIONS {
        assert_eq!(run(kind, 1, lost, true), Err(Stop::Timeout(LIMIT)));
    }
    assert_eq!(run(Kind::Send, 1, None, false), Err(Stop::Timeout(LIMIT)));
    assert_eq!(run(POLLED, 1, None, false), Err(Stop::Timeout(LIMIT)));
}

#[test]
fn a_responder_sends_nothing_before_a_message() {
    let (_near, mut far) = pair(POLLED, 1);
    let mut far = Responder::<Writes<false>, _>::new(&mut far, short_watchdog());
    assert_eq!(far.step(), Ok(false));
    assert_eq!(far.answered, 0);
}

#[test]
fn a_responder_waits_for_the_send_behind_a_write() {
    let (mut near, mut far) = pair(BEHIND, 1);
    let mut far = Responder::<Writes<true>, _>::new(&mut far, short_watchdog());
    near.link.write_sequence(1);
    near.link.post(false).unwrap();
    // The byte is there, and is not looked at.
    assert_eq!(far.side.link.read_sequence(), 1);
    assert_eq!(far.step(), Ok(false));
    near.link.post_empty(true).unwrap();
    assert_eq!(far.step(), Ok(true));
    assert_eq!((far.answered, near.link.read_sequence()), (1, 1));
}

#[test]
fn a_send_that_overtakes_its_write_ends_the_run() {
    let (mut near, mut far) = pair(BEHIND, 1);
    let mut far = Responder::<Writes<true>, _>::new(&mut far, short_watchdog());
    near.link.post_empty(true).unwrap();
    assert_eq!(far.step(), Err(Stop::Overtaken));
}

/// A run on schedule, with `warmed` messages before it. Returns what it recorded,
/// and the number of messages.
fn on_schedule(
    kind: Kind,
    depth: u32,
    interval: f64,
    limit: u64,
) -> Result<(Recording, u64), Stop> {
    const WARMED: u64 = 300;
    let (mut near, mut far) = pair(kind, depth);
    for _ in 1..depth {
        near.link.post_receive().unwrap();
        far.link.post_receive().unwrap();
    }
    let clock = Clock::monotonic();
    let samples = || Samples::new(&clock, Reported::FullRoundTrip);
    let mut recording = Recording::new(samples);
    let schedule = Schedule {
        clock,
        interval,
        count: 1000,
        limit,
    };
    let watchdog = &mut short_watchdog();
    let sent = with_messages!(kind, M => {
        let mut far = Responder::<M, _>::new(&mut far, short_watchdog());
        far.answered = WARMED;
        let run = &mut recording;
        open::measure::<M, _>(&mut near, &mut far, &schedule, WARMED, run, watchdog)
    })?;
    Ok((recording, sent))
}

const OPERATIONS: [Kind; 4] = [Kind::Send, POLLED, BEHIND, Kind::Read];

#[test]
fn an_open_loop_answers_every_message_and_records_both_times() {
    for kind in OPERATIONS {
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
    for kind in OPERATIONS {
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
