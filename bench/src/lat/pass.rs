//! One uninterrupted measurement: what messages it exchanges, and what it records.

use super::arrival::{Arrival, Method};
use crate::clock::Clock;
use crate::noise::Noise;
use crate::options::Operation;
use crate::stats::Samples;
use crate::stats::pace::Pace;
use crate::stats::timeline::Timeline;

/// What messages a pass exchanges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Each takes a receive.
    Receive,
    Write(Method),
    /// The completion is the answer.
    Fetch,
}

impl Kind {
    /// Returns the kind of an operation; `arrival` is that of a write.
    pub(super) fn of(operation: Operation, arrival: Option<Arrival>) -> Self {
        match operation {
            // Without a method, the one that needs no promise.
            Operation::Write => Self::Write(arrival.map_or(Method::SendBehind, |it| it.method)),
            it if it.fetches() => Self::Fetch,
            _ => Self::Receive,
        }
    }
}

/// One size in one round, through one interface.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pass {
    /// Bytes.
    pub(super) size: u32,
    /// Below the number of rounds.
    pub(super) round: u32,
    /// Messages per second; none in a closed loop.
    pub(super) rate: Option<f64>,
    pub(super) kind: Kind,
}

/// The schedule of one round in an open loop.
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
    pub(super) fn due(&self, number: u64) -> u64 {
        (number as f64 * self.interval) as u64
    }
}

/// What one pass records.
pub(super) struct Recording {
    /// Round trips; in an open loop, response times.
    pub(super) samples: Samples,
    /// Service times of an open loop.
    pub(super) service: Samples,
    pub(super) timeline: Timeline,
    pub(super) pace: Pace,
    pub(super) noise: Noise,
    /// Messages exchanged, warm-up included.
    pub(super) messages: u64,
}

impl Recording {
    /// Returns a recording without samples; `samples` makes them.
    pub(super) fn new(samples: impl Fn() -> Samples, timeline: Timeline) -> Self {
        Self {
            samples: samples(),
            service: samples(),
            timeline,
            pace: Pace::default(),
            noise: Noise::default(),
            messages: 0,
        }
    }

    /// Removes what an earlier pass has recorded.
    pub(super) fn clear(&mut self) {
        self.samples.clear();
        self.service.clear();
        self.pace = Pace::default();
        self.noise = Noise::default();
    }
}
