//! Sampling of the measuring loops: warm-up, samples, and the end.
//!
//! A sample is the time from one post to the next, as in perftest: the round
//! trip and the loop's own work. The clock is read once per round trip, and a
//! sample is recorded while the next message is in flight.

use crate::clock::Clock;
use crate::report::Goal;
use crate::stats::Samples;
use crate::stats::timeline::Timeline;

/// Counts round trips, and records a sample of each one after the warm-up.
pub(super) struct Meter<'a> {
    clock: Clock,
    samples: &'a mut Samples,
    timeline: &'a mut Timeline,
    warmup: u64,
    /// Number of round trips to make, warm-up included.
    last_trip: u64,
    /// Measuring time after the warm-up, in ticks.
    duration: u64,
    /// Time of the end, in ticks; set at the end of the warm-up.
    end: u64,
    /// Round trips begun.
    begun: u64,
    /// When the current one began, in ticks.
    since: u64,
    /// Length of the previous one, in ticks.
    ticks: u64,
}

impl<'a> Meter<'a> {
    pub(super) fn new(
        clock: Clock,
        goal: Goal,
        warmup: u64,
        (samples, timeline): (&'a mut Samples, &'a mut Timeline),
    ) -> Self {
        let (last_trip, duration) = match goal {
            Goal::Iterations(count) => (warmup.saturating_add(count), u64::MAX),
            Goal::Duration(duration) => (u64::MAX, clock.ticks(duration)),
        };
        Self {
            clock,
            samples,
            timeline,
            warmup,
            last_trip,
            duration,
            end: u64::MAX,
            begun: 0,
            since: 0,
            ticks: 0,
        }
    }

    /// Ends a round trip (except in the first call) and begins the next. Returns
    /// `false` if the measurement is over.
    #[inline(always)]
    pub(super) fn lap(&mut self) -> bool {
        let now = self.clock.now();
        self.ticks = now.wrapping_sub(self.since);
        self.since = now;
        let over = self.begun;
        if over == self.warmup {
            self.end = now.saturating_add(self.duration);
        }
        self.begun += 1;
        over < self.last_trip && now < self.end
    }

    /// Does something whose time belongs to no round trip.
    #[inline(always)]
    pub(super) fn exclude<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let begin = self.clock.now();
        let done = work();
        self.since = self
            .since
            .wrapping_add(self.clock.now().wrapping_sub(begin));
        done
    }

    /// Records the round trip that the last [`Meter::lap`] ended, unless it
    /// belongs to the warm-up.
    #[inline(always)]
    pub(super) fn record(&mut self) {
        if self.begun > self.warmup + 1 {
            self.samples.record(self.ticks);
            let sent = self.since.wrapping_sub(self.ticks);
            self.timeline.record(sent, self.ticks, self.ticks);
        }
    }

    /// Returns the number of round trips, warm-up included.
    pub(super) fn round_trips(&self) -> u64 {
        self.begun.saturating_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Reported;
    use crate::stats::timeline::Part;
    use std::time::Duration;

    fn run(goal: Goal, warmup: u64) -> (u64, u64) {
        let clock = Clock::monotonic();
        let mut samples = Samples::new(&clock, Reported::FullRoundTrip);
        let mut timeline = Timeline::new(clock, 1, 0);
        timeline.begin(Part::Messages(100));
        let mut meter = Meter::new(clock, goal, warmup, (&mut samples, &mut timeline));
        let mut trips = 0;
        while meter.lap() {
            meter.record();
            trips += 1;
        }
        meter.record();
        assert_eq!(meter.round_trips(), trips);
        let slots = timeline.points(0, Reported::FullRoundTrip);
        assert_eq!(slots.map(|slot| slot.samples).sum::<u64>(), samples.count());
        (trips, samples.count())
    }

    #[test]
    fn every_round_trip_after_the_warm_up_is_a_sample() {
        assert_eq!(run(Goal::Iterations(100), 30), (130, 100));
        assert_eq!(run(Goal::Iterations(1), 0), (1, 1));
    }

    #[test]
    fn a_duration_counts_from_the_end_of_the_warm_up() {
        let start = std::time::Instant::now();
        let (trips, samples) = run(Goal::Duration(Duration::from_millis(20)), 1000);
        assert!(start.elapsed() >= Duration::from_millis(20));
        assert!(samples >= 1);
        assert_eq!(trips, samples + 1000);
    }
}
