//! A look at the core before a round: the thread reads the clock again and again
//! and notes the gaps between readings, in which something else ran: interrupts,
//! other threads, the hypervisor, firmware. Then it times a fixed loop, whose
//! time follows the core's frequency and the load on its sibling.

use std::hint::black_box;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::Clock;

/// Length of a look.
const LENGTH: Duration = Duration::from_millis(2);
/// A longer time between two readings is a gap.
const LEAST_GAP: Duration = Duration::from_micros(1);
/// Most gaps in the log of a result.
const MOST_LOGGED: usize = 100;
/// Steps of the fixed loop, and attempts, of which the fastest counts.
const STEPS: u32 = 4000;
const ATTEMPTS: u32 = 5;

/// The result of one look.
#[derive(Clone, Debug, Default)]
pub(super) struct Look {
    pub(super) hiccups: Hiccups,
    /// Time of one step of the fixed loop; none without a look.
    pub(super) step_nanoseconds: Option<f64>,
}

/// Gaps in the time of a core, and how long it was watched.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct Hiccups {
    pub(crate) watched_nanoseconds: u64,
    /// Number of looks: one per round.
    pub(crate) looks: u32,
    pub(crate) gaps: u64,
    /// The sum of all gaps.
    pub(crate) lost_nanoseconds: u64,
    pub(crate) longest_nanoseconds: u64,
    /// The first gaps.
    pub(crate) log: Vec<Gap>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Gap {
    /// The round before which it was seen, from 0.
    pub(crate) round: u32,
    /// Its beginning, from that of the look.
    pub(crate) at_nanoseconds: u64,
    pub(crate) nanoseconds: u64,
}

impl Look {
    /// Looks at the core of the calling thread.
    pub(super) fn at_the_core(clock: &Clock) -> Self {
        let nanoseconds = |ticks: u64| (ticks as f64 * clock.nanoseconds_per_tick()) as u64;
        Self {
            hiccups: watch(
                || clock.now(),
                clock.ticks(LENGTH),
                clock.ticks(LEAST_GAP),
                nanoseconds,
            ),
            step_nanoseconds: Some(step(clock)),
        }
    }
}

impl Hiccups {
    /// Returns the share of the watched time that was lost.
    pub(crate) fn share(&self) -> f64 {
        self.lost_nanoseconds as f64 / self.watched_nanoseconds.max(1) as f64
    }

    pub(super) fn add(&mut self, other: &Self) {
        let room = MOST_LOGGED.saturating_sub(self.log.len());
        let later = other.log.iter().map(|gap| Gap {
            round: gap.round + self.looks,
            ..*gap
        });
        self.log.extend(later.take(room));
        self.watched_nanoseconds += other.watched_nanoseconds;
        self.looks += other.looks;
        self.gaps += other.gaps;
        self.lost_nanoseconds += other.lost_nanoseconds;
        self.longest_nanoseconds = self.longest_nanoseconds.max(other.longest_nanoseconds);
    }
}

/// Reads the clock for `length` ticks, and notes gaps of more than `least` ticks.
fn watch(
    mut now: impl FnMut() -> u64,
    length: u64,
    least: u64,
    nanoseconds: impl Fn(u64) -> u64,
) -> Hiccups {
    let mut hiccups = Hiccups {
        looks: 1,
        log: Vec::with_capacity(MOST_LOGGED),
        ..Hiccups::default()
    };
    let begin = now();
    let mut last = begin;
    while last.wrapping_sub(begin) < length {
        let next = now();
        let gap = next.wrapping_sub(last);
        if gap > least {
            let gap = Gap {
                round: 0,
                at_nanoseconds: nanoseconds(last.wrapping_sub(begin)),
                nanoseconds: nanoseconds(gap),
            };
            hiccups.gaps += 1;
            hiccups.lost_nanoseconds += gap.nanoseconds;
            hiccups.longest_nanoseconds = hiccups.longest_nanoseconds.max(gap.nanoseconds);
            if hiccups.log.len() < MOST_LOGGED {
                hiccups.log.push(gap);
            }
        }
        last = next;
    }
    hiccups.watched_nanoseconds = nanoseconds(last.wrapping_sub(begin));
    hiccups
}

/// Returns the time of one step of a chain of multiplications, each of which
/// needs the result of the one before it.
fn step(clock: &Clock) -> f64 {
    let attempt = || {
        let begin = clock.now();
        let mut value = black_box(1u64);
        for _ in 0..STEPS {
            value = value.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(7);
        }
        black_box(value);
        clock.now().wrapping_sub(begin)
    };
    let fastest = (0..ATTEMPTS).map(|_| attempt()).min().unwrap_or(0).max(1);
    fastest as f64 * clock.nanoseconds_per_tick() / f64::from(STEPS)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A clock with these steps, then steps of 10.
    fn clock(steps: &[u64]) -> impl FnMut() -> u64 {
        let mut steps = steps.iter().copied();
        let mut time = 1000;
        move || {
            time += steps.next().unwrap_or(10);
            time
        }
    }

    #[test]
    fn gaps_are_logged_with_place_and_length() {
        // The first reading only begins the look.
        let seen = watch(clock(&[0, 10, 500, 10, 2000]), 3000, 100, |ticks| ticks);
        assert_eq!((seen.gaps, seen.longest_nanoseconds), (2, 2000));
        assert_eq!(seen.lost_nanoseconds, 2500);
        assert_eq!(seen.watched_nanoseconds, 3000);
        let log: Vec<_> = seen
            .log
            .iter()
            .map(|gap| (gap.at_nanoseconds, gap.nanoseconds))
            .collect();
        assert_eq!(log, [(10, 500), (520, 2000)]);
        assert_eq!(watch(clock(&[]), 3000, 100, |ticks| ticks).gaps, 0);
    }

    #[test]
    fn the_log_is_bounded_and_counts_go_on() {
        let steps = [200; 1000];
        let mut sum = Hiccups::default();
        for _ in 0..3 {
            sum.add(&watch(clock(&steps), 60 * 200, 100, |ticks| ticks));
        }
        assert_eq!((sum.looks, sum.gaps), (3, 180));
        assert_eq!(sum.log.len(), MOST_LOGGED);
        assert_eq!((sum.log[0].round, sum.log[99].round), (0, 1));
        assert_eq!(sum.share(), 1.0);
    }

    #[test]
    fn a_look_lasts_as_long_as_it_says_and_times_the_loop() {
        let look = Look::at_the_core(&Clock::calibrate());
        assert!(look.hiccups.watched_nanoseconds >= 1_900_000, "{look:?}");
        assert!(look.step_nanoseconds > Some(0.0), "{look:?}");
    }
}
