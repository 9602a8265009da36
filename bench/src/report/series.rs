//! Latencies of a case over its time, for result files, and its messages one by one, for
//! `--samples`.

use std::fmt::Write;

use serde::Serialize;

use crate::noise::Noise;
use crate::stats::Reported;
use crate::stats::timeline::{Kept, Point, Timeline};

/// Most messages of a run that are kept one by one.
pub(crate) const MOST_KEPT: u64 = 1_000_000;

/// The latencies of a case over its time. Microseconds; times count from the first measured
/// message.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Series {
    slots: Vec<Point>,
    rounds: Vec<Round>,
    /// Messages, each with its round.
    #[serde(skip)]
    kept: Vec<(usize, Kept)>,
    /// Ticks of the clock at the first measured message.
    #[serde(skip)]
    origin: Option<u64>,
}

/// What disturbed the thread in a round, and in the look at its core before.
#[derive(Clone, Copy, Debug, Serialize)]
struct Round {
    begin: f64,
    end: f64,
    involuntary_switches: u64,
    migrations: u64,
    stolen_nanoseconds: Option<u64>,
    /// Gaps before the round.
    gaps: u64,
    longest_gap_nanoseconds: u64,
}

impl Series {
    /// Adds a pass. The noise is that of the pass alone.
    pub(crate) fn add(&mut self, pass: &Timeline, reported: Reported, noise: &Noise) {
        let Some((begin, end)) = pass.span() else {
            return;
        };
        let origin = *self.origin.get_or_insert(begin);
        let round = self.rounds.len();
        self.slots.extend(pass.points(origin, reported));
        let kept = pass.kept(origin, reported);
        self.kept.extend(kept.map(|message| (round, message)));
        self.rounds.push(Round {
            begin: pass.since(origin, begin),
            end: pass.since(origin, end),
            involuntary_switches: noise.ran.involuntary_switches,
            migrations: noise.migrations,
            stolen_nanoseconds: noise.stolen_nanoseconds,
            gaps: noise.hiccups.gaps,
            longest_gap_nanoseconds: noise.hiccups.longest_nanoseconds,
        });
    }

    /// Returns the number of messages that were kept one by one.
    pub(crate) fn kept(&self) -> u64 {
        self.kept.len() as u64
    }

    /// Appends the kept messages as rows of CSV: time, round, `keys`, latency, and in an open loop
    /// the service time.
    pub(crate) fn rows(&self, keys: &str, is_open: bool, out: &mut String) {
        for (round, it) in &self.kept {
            // Writing to a String cannot fail.
            let _ = write!(out, "{:.3},{round},{keys},{:.3}", it.sent, it.latency);
            if is_open {
                let _ = write!(out, ",{:.3}", it.service);
            }
            out.push('\n');
        }
    }
}
