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

use super::kind::Kind;
use super::plan::Recording;
use super::side::{OtherSide, Side};
use super::write;
use crate::clock::Clock;
use crate::ends::{End, Stop, Watchdog};
use crate::report::Method;
use crate::stats::pace::Pace;

/// The schedule of one round.
#[derive(Clone, Copy, Debug)]
pub(super) struct Schedule {
    pub(super) clock: Clock,
    /// Ticks between two messages.
    pub(super) interval: f64,
    /// Number of messages.
    pub(super) count: u64,
    /// Ticks after which no more messages are sent.
    pub(super) limit: u64,
}

impl Schedule {
    /// Returns when message `number` is due, in ticks from the beginning.
    #[inline(always)]
    fn due(&self, number: u64) -> u64 {
        (number as f64 * self.interval) as u64
    }
}

/// Sends the messages of the schedule, and records response and service times.
/// `warmed` is the number of messages that the warm-up has exchanged. Returns the
/// number of messages.
pub(super) fn measure<E: End>(
    side: &mut Side<E>,
    other_side: &mut impl OtherSide,
    kind: Kind,
    schedule: &Schedule,
    warmed: u64,
    recording: &mut Recording,
    watchdog: &mut Watchdog<'_>,
) -> Result<u64, Stop> {
    let clock = schedule.clock;
    // The answer to a write is one byte of memory, which shows the last one only.
    let most = match kind {
        Kind::Write(_) => 1,
        Kind::Send | Kind::Read => side.depth() as usize,
    };
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
        if is_due && in_flight < most && !side.is_full() {
            if now.wrapping_sub(begin) > schedule.limit {
                count = sent;
                continue;
            }
            flights[sent as usize % most] = (due, now);
            send(side, kind, warmed + sent + 1)?;
            sent += 1;
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
        if answer(side, kind, warmed + answered + 1)? {
            let now = clock.now();
            let (due, sent) = flights[answered as usize % most];
            recording.samples.record(now.wrapping_sub(due));
            recording.service.record(now.wrapping_sub(sent));
            answered += 1;
            watchdog.reset();
        } else if kind == Kind::Read {
            // Completions are answers here, which `after_empty_poll` would take.
            if watchdog.tick() {
                watchdog.check()?;
            }
        } else {
            other_side.step()?;
            side.after_empty_poll(watchdog)?;
        }
    }
    pace.due = schedule.count;
    pace.sent = sent;
    pace.elapsed = last.wrapping_sub(begin) + schedule.interval as u64;
    recording.pace = pace.in_nanoseconds(clock.nanoseconds_per_tick());
    side.drain(watchdog)?;
    Ok(sent)
}

/// Posts a message. `number` counts from 1.
#[inline(always)]
fn send<E: End>(side: &mut Side<E>, kind: Kind, number: u64) -> Result<(), Stop> {
    match kind {
        Kind::Send => side.post(),
        // Both sides use the low byte of the number.
        Kind::Write(Method::LastByte) => write::post::<E, false>(side, number as u8),
        Kind::Write(Method::SendBehind) => write::post::<E, true>(side, number as u8),
        Kind::Read => Ok(side.link.post(true)?),
    }
}

/// Takes the answer to a message, if it has arrived.
#[inline(always)]
fn answer<E: End>(side: &mut Side<E>, kind: Kind, number: u64) -> Result<bool, Stop> {
    match kind {
        Kind::Send => side.receive(),
        Kind::Write(Method::LastByte) => write::has_arrived::<E, false>(side, number as u8),
        Kind::Write(Method::SendBehind) => write::has_arrived::<E, true>(side, number as u8),
        Kind::Read => match side.link.await_sent() {
            Some(done) => side.expect_size(done).map(|()| true),
            None => Ok(false),
        },
    }
}
