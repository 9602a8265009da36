//! The open loop (`--rate`): a message is sent when it is due, whether or not
//! the messages before it have been answered.
//!
//! ```text
//! due │ (late) │ sent │ ........ answered
//!     └──────── response time ──────────┘
//!              └──── service time ──────┘
//! ```
//!
//! The response time counts from the time at which the message was due. So a
//! stall delays not only one sample, but all messages that were due during it,
//! as it would delay the requests of independent users. The clock is read once
//! in each turn of the loop.

use super::closed::OtherSide;
use super::messages::Messages;
use super::pass::{Recording, Schedule};
use super::side::{Side, Turn, drain};
use crate::ends::{End, Stop, Watchdog};
use crate::stats::pace::Pace;

/// Sends the messages of the schedule, and records response and service times.
/// `first` is the turn of the first one. Returns the number of messages.
pub(super) fn measure<M: Messages, E: End>(
    sides: &mut [Side<E>],
    other_side: &mut impl OtherSide,
    schedule: &Schedule,
    first: Turn,
    recording: &mut Recording,
    watchdog: &mut Watchdog<'_>,
) -> Result<u64, Stop> {
    let clock = schedule.clock;
    let (mut next, mut awaited, endpoints) = (first, first, sides.len());
    let checks = M::NUMBERED && sides[0].link.checks();
    let most = M::MOST_IN_FLIGHT.min(sides[0].depth() as usize);
    // When each message in flight was due and sent.
    let mut flights = vec![(0, 0); most];
    let (mut sent, mut answered, mut count) = (0u64, 0u64, schedule.count);
    let mut pace = Pace::default();
    let begin = clock.now();
    let (mut due, mut last) = (begin, begin);
    while answered < count {
        let now = clock.now();
        let is_due = sent < count && now.wrapping_sub(due).cast_signed() >= 0;
        let in_flight = (sent - answered) as usize;
        let (side, number) = (&mut sides[next.endpoint], next.number);
        if is_due && in_flight < most && !side.is_full() {
            if now.wrapping_sub(begin) > schedule.limit {
                count = sent;
                continue;
            }
            flights[sent as usize % most] = (due, now);
            sent += 1;
            if checks {
                side.link.fill(number);
            }
            M::post(side, number)?;
            next = M::next(next, endpoints);
            let lag = now.wrapping_sub(due);
            due = begin.wrapping_add(schedule.due(sent));
            pace.late += u64::from(now.wrapping_sub(due).cast_signed() >= 0);
            pace.longest_lag = pace.longest_lag.max(lag);
            pace.final_lag = lag;
            last = now;
        } else if in_flight == 0 {
            if side.is_full() {
                side.after_empty_poll(watchdog)?;
            }
            continue;
        }
        let (side, number) = (&mut sides[awaited.endpoint], awaited.number);
        if M::has_arrived(side, number)? {
            let now = clock.now();
            let (due, sent) = flights[answered as usize % most];
            let (response, service) = (now.wrapping_sub(due), now.wrapping_sub(sent));
            recording.samples.record(response);
            recording.service.record(service);
            recording.timeline.record(sent, response, service);
            answered += 1;
            if checks {
                side.link.check(number)?;
            }
            awaited = M::next(awaited, endpoints);
            watchdog.reset();
        } else {
            if other_side.step()? {
                other_side.settle()?;
            }
            M::after_empty_poll(side, watchdog)?;
        }
    }
    pace.due = schedule.count;
    pace.sent = sent;
    pace.elapsed = last.wrapping_sub(begin) + schedule.interval as u64;
    recording.pace = pace.in_nanoseconds(clock.nanoseconds_per_tick());
    drain(sides, watchdog)?;
    Ok(sent)
}
