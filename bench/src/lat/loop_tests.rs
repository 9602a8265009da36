//! The measuring loops over simulated links in memory: counts, order and error
//! handling.

use std::time::Duration;

use dat_engine::Status;

use super::meter::Meter;
use super::open::{self, Schedule};
use super::plan::Recording;
use super::side::{OtherSide, Remote, Side};
use super::{read, send, write};
use crate::cli::Operation;
use crate::clock::Clock;
use crate::ends::memory_link::{Break, MemoryLink, SIZE, failed, memory_pair};
use crate::ends::{Link, Stop, Watchdog};
use crate::noise::Noise;
use crate::report::Goal;
use crate::stats::pace::Pace;
use crate::stats::{Reported, Samples};

fn pair(operation: Operation, depth: u32) -> (Side<MemoryLink>, Side<MemoryLink>) {
    let side = |link| {
        let mut side = Side::new(link, depth);
        side.set_size(SIZE);
        side
    };
    let (one, two) = memory_pair(operation, depth);
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
    operation: Operation,
    depth: u32,
    breaks: Option<(u64, Break)>,
    answers: bool,
) -> Result<(u64, u64, u64), Stop> {
    let (mut near, mut far) = pair(operation, depth);
    near.link.breaks = breaks;
    let clock = Clock::monotonic();
    let mut samples = Samples::new(&clock, Reported::HalfRoundTrip);
    let mut meter = Meter::new(clock, Goal::Iterations(1000), 100, &mut samples);
    let (near, watchdog, mut answered) = (&mut near, &mut short_watchdog(), 0);
    match operation {
        Operation::Send if answers => {
            let mut far = send::Responder {
                side: &mut far,
                watchdog: short_watchdog(),
                answered: 0,
            };
            send::measure(near, &mut far, &mut meter, watchdog)?;
            answered = far.answered;
        }
        Operation::Write if answers => {
            let mut far = write::Responder {
                side: &mut far,
                watchdog: short_watchdog(),
                answered: 0,
            };
            write::measure(near, &mut far, &mut meter, watchdog)?;
            answered = far.answered;
        }
        Operation::Send => send::measure(near, &mut Remote, &mut meter, watchdog)?,
        Operation::Write => write::measure(near, &mut Remote, &mut meter, watchdog)?,
        Operation::Read => read::measure(near, &mut meter, watchdog)?,
    }
    let sent = meter.round_trips();
    Ok((samples.count(), sent, answered))
}

#[test]
fn every_message_is_answered_and_sampled() {
    for depth in [1, 2, 3, 7, 64] {
        assert_eq!(
            run(Operation::Send, depth, None, true),
            Ok((1000, 1100, 1100))
        );
        assert_eq!(
            run(Operation::Write, depth, None, true),
            Ok((1000, 1100, 1100))
        );
    }
    assert_eq!(run(Operation::Read, 1, None, true), Ok((1000, 1100, 0)));
}

#[test]
fn a_failed_request_ends_the_run_even_if_unsignalled() {
    let breaks = Some((150, Break::Status(Status::RetryExceeded)));
    for operation in [Operation::Send, Operation::Write, Operation::Read] {
        for depth in [1, 64] {
            match run(operation, depth, breaks, true) {
                Err(Stop::Fault(fault)) => assert_eq!(fault, failed(Status::RetryExceeded)),
                other => panic!("{operation:?} at depth {depth}: {other:?}"),
            }
        }
    }
}

#[test]
fn a_message_of_unexpected_length_ends_the_run() {
    for operation in [Operation::Send, Operation::Read] {
        let stop = run(operation, 1, Some((150, Break::Short)), true).unwrap_err();
        assert!(
            matches!(stop, Stop::Length { expected: SIZE, .. }),
            "{stop:?}"
        );
    }
}

#[test]
fn a_lost_message_ends_the_run_after_the_timeout() {
    let lost = Some((150, Break::Lost));
    for operation in [Operation::Send, Operation::Write, Operation::Read] {
        assert_eq!(run(operation, 1, lost, true), Err(Stop::Timeout(LIMIT)));
    }
    assert_eq!(
        run(Operation::Send, 1, None, false),
        Err(Stop::Timeout(LIMIT))
    );
    assert_eq!(
        run(Operation::Write, 1, None, false),
        Err(Stop::Timeout(LIMIT))
    );
}

#[test]
fn a_responder_sends_nothing_before_a_message() {
    let (_near, mut far) = pair(Operation::Write, 1);
    let mut far = write::Responder {
        side: &mut far,
        watchdog: short_watchdog(),
        answered: 0,
    };
    assert_eq!(far.step(), Ok(false));
    assert_eq!(far.answered, 0);
}

/// A run on schedule, with `warmed` messages before it. Returns what it recorded,
/// and the number of messages.
fn on_schedule(
    operation: Operation,
    depth: u32,
    interval: f64,
    limit: u64,
) -> Result<(Recording, u64), Stop> {
    const WARMED: u64 = 300;
    let (mut near, mut far) = pair(operation, depth);
    for _ in 1..depth {
        near.link.post_receive().unwrap();
        far.link.post_receive().unwrap();
    }
    let clock = Clock::monotonic();
    let samples = || Samples::new(&clock, Reported::FullRoundTrip);
    let mut recording = Recording {
        samples: samples(),
        service: samples(),
        pace: Pace::default(),
        noise: Noise::default(),
    };
    let schedule = Schedule {
        clock,
        interval,
        count: 1000,
        limit,
    };
    let watchdog = &mut short_watchdog();
    let (side, run) = (&mut far, &mut recording);
    let sent = match operation {
        Operation::Send => {
            let mut far = send::Responder {
                side,
                watchdog: short_watchdog(),
                answered: WARMED,
            };
            open::measure(
                &mut near, &mut far, operation, &schedule, WARMED, run, watchdog,
            )
        }
        Operation::Write => {
            let mut far = write::Responder {
                side,
                watchdog: short_watchdog(),
                answered: WARMED,
            };
            open::measure(
                &mut near, &mut far, operation, &schedule, WARMED, run, watchdog,
            )
        }
        Operation::Read => open::measure(
            &mut near,
            &mut Remote,
            operation,
            &schedule,
            WARMED,
            run,
            watchdog,
        ),
    }?;
    Ok((recording, sent))
}

const OPERATIONS: [Operation; 3] = [Operation::Send, Operation::Write, Operation::Read];

#[test]
fn an_open_loop_answers_every_message_and_records_both_times() {
    for operation in OPERATIONS {
        for depth in [1, 2, 7] {
            let (run, sent) = on_schedule(operation, depth, 100.0, u64::MAX).unwrap();
            assert_eq!(sent, 1000, "{operation:?} {depth}");
            assert_eq!((run.samples.count(), run.service.count()), (1000, 1000));
            assert_eq!((run.pace.due, run.pace.sent), (1000, 1000));
            // A message is never sent before it is due.
            assert!(
                run.samples.mean() >= run.service.mean(),
                "{operation:?} {depth}"
            );
            assert!(
                run.samples.min() >= run.service.min(),
                "{operation:?} {depth}"
            );
        }
    }
}

#[test]
fn a_sender_that_cannot_keep_its_rate_falls_behind() {
    for operation in OPERATIONS {
        // All messages are due at once.
        let (run, sent) = on_schedule(operation, 4, 0.0, u64::MAX).unwrap();
        assert_eq!((sent, run.pace.late), (1000, 1000), "{operation:?}");
        assert!(run.pace.final_lag > 0 && run.pace.final_lag <= run.pace.longest_lag);
        // The last response time has the whole run in it.
        assert!(
            run.samples.max() > run.service.quantile(0.5),
            "{operation:?}"
        );
        // Without time, not all messages are sent, and those are answered.
        let (run, sent) = on_schedule(operation, 4, 0.0, 0).unwrap();
        assert!(sent < 1000, "{operation:?}: {sent}");
        assert_eq!((run.pace.due, run.pace.sent), (1000, sent));
        assert_eq!(run.samples.count(), sent);
        assert!(run.pace.fell_behind(1.0));
    }
}
