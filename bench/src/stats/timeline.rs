//! When latencies came: the samples of a pass by time, and its first messages one by one.
//!
//! A pass is divided into slots: parts of its messages, or of its time. Each slot has a small
//! histogram, and its largest sample. Nothing is allocated, merged or summed up while messages are
//! measured: that is done between passes.

use std::hint::black_box;
use std::time::Duration;

use hdrhistogram::Histogram;

use super::reported::{Reported, supports};
use crate::clock::Clock;

/// Slots of a case, in all rounds; a round has at least one.
const SLOTS: u32 = 100;
/// Most slots of a round, if there are few rounds.
const MOST_SLOTS: u32 = 50;
/// The largest value of a slot's histogram, ticks. Longer samples are recorded as this one; the
/// largest sample remains exact.
const LONGEST: u64 = 1 << 38;
/// Significant decimal digits of a slot's histogram.
const DIGITS: u8 = 2;

/// One message; times are ticks.
#[derive(Clone, Copy, Debug)]
struct Message {
    sent: u64,
    latency: u64,
    service: u64,
}

/// One message, in microseconds; `sent` counts from the origin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Kept {
    pub(crate) sent: f64,
    pub(crate) latency: f64,
    pub(crate) service: f64,
}

/// The messages of a slot, in microseconds; `begin` counts from the origin.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub(crate) struct Point {
    pub(crate) begin: f64,
    pub(crate) samples: u64,
    pub(crate) t_typical: f64,
    /// None with too few samples.
    pub(crate) p99: Option<f64>,
    pub(crate) t_max: f64,
}

/// The messages of a part of a pass.
struct Slot {
    /// When the first message was sent, ticks.
    begin: u64,
    max: u64,
    /// Latencies in ticks.
    histogram: Histogram<u32>,
}

/// When a slot ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Part {
    /// After this many messages.
    Messages(u64),
    /// After this time.
    Time(Duration),
}

/// The samples of one pass, by the time at which their messages were sent.
pub(crate) struct Timeline {
    clock: Clock,
    slots: Vec<Slot>,
    /// The index of the slot of the last message.
    current: usize,
    /// Messages that the slot has room for.
    left: u64,
    /// Messages of a slot.
    messages: u64,
    /// Ticks of a slot.
    ticks: u64,
    /// When the last message was sent.
    last: u64,
    /// The first messages of the pass, at most `most`.
    first: Vec<Message>,
    most: usize,
}

impl Timeline {
    /// Returns an empty timeline for the passes of a case with this many rounds; `most` is the
    /// number of messages of each pass that are kept one by one.
    pub(crate) fn new(clock: Clock, rounds: u32, most: u64) -> Self {
        let slots = (SLOTS / rounds.max(1)).clamp(1, MOST_SLOTS);
        let slot = |_| Slot {
            begin: 0,
            max: 0,
            histogram: Histogram::new_with_bounds(1, LONGEST, DIGITS)
                .expect("the bounds are constants that the histogram accepts"),
        };
        let most = most as usize;
        let mut first = Vec::new();
        // Not zeros, which would be pages that the kernel supplies at the first write: in the
        // measuring loop.
        let message = Message {
            sent: 1,
            latency: 1,
            service: 1,
        };
        first.resize(most, message);
        black_box(&mut first).clear();
        Self {
            clock,
            slots: (0..slots).map(slot).collect(),
            current: 0,
            left: 0,
            messages: u64::MAX,
            ticks: u64::MAX,
            last: 0,
            first,
            most,
        }
    }

    /// Removes what an earlier pass has recorded, and begins a pass of these messages, or of
    /// this time.
    pub(crate) fn begin(&mut self, all: Part) {
        let slots = self.slots.len() as u64;
        (self.messages, self.ticks) = match all {
            Part::Messages(count) => (count.div_ceil(slots).max(1), u64::MAX),
            Part::Time(time) => (u64::MAX, self.clock.ticks(time) / slots),
        };
        for slot in &mut self.slots {
            slot.histogram.reset();
            slot.max = 0;
        }
        self.current = 0;
        self.left = 0;
        self.first.clear();
    }

    /// Records a message: when it was sent, its latency, and its service time, in ticks.
    #[inline]
    pub(crate) fn record(&mut self, sent: u64, latency: u64, service: u64) {
        let slot = &self.slots[self.current];
        if self.left == 0 || sent.wrapping_sub(slot.begin) >= self.ticks {
            self.next(sent);
        }
        self.left -= 1;
        self.last = sent;
        let slot = &mut self.slots[self.current];
        slot.max = slot.max.max(latency);
        slot.histogram.saturating_record(latency.min(LONGEST));
        if self.first.len() < self.most {
            self.first.push(Message {
                sent,
                latency,
                service,
            });
        }
    }

    /// Goes on to the next slot; the last one has no end.
    #[cold]
    fn next(&mut self, sent: u64) {
        if !self.slots[self.current].histogram.is_empty() {
            if self.current + 1 == self.slots.len() {
                (self.left, self.ticks) = (u64::MAX, u64::MAX);
                return;
            }
            self.current += 1;
        }
        self.slots[self.current].begin = sent;
        self.left = self.messages;
    }

    fn used(&self) -> impl DoubleEndedIterator<Item = &Slot> {
        let used = self.slots.iter();
        used.filter(|slot| !slot.histogram.is_empty())
    }

    /// Returns when the first and the last message were sent, in ticks; none without messages.
    pub(crate) fn span(&self) -> Option<(u64, u64)> {
        Some((self.used().next()?.begin, self.last))
    }

    fn microseconds(&self, ticks: u64) -> f64 {
        ticks as f64 * self.clock.nanoseconds_per_tick() / 1000.0
    }

    /// Returns the time of the clock since `origin`.
    pub(crate) fn since(&self, origin: u64, at: u64) -> f64 {
        self.microseconds(at.wrapping_sub(origin))
    }

    /// Returns the slots with messages; times count from `origin`, ticks.
    pub(crate) fn points(&self, origin: u64, reported: Reported) -> impl Iterator<Item = Point> {
        let latency = move |ticks| self.microseconds(ticks) / reported.divisor();
        self.used().map(move |slot| {
            let all = &slot.histogram;
            let share = |share| {
                let middle = all.median_equivalent(all.value_at_quantile(share));
                latency(middle.min(slot.max))
            };
            Point {
                begin: self.since(origin, slot.begin),
                samples: all.len(),
                t_typical: share(0.5),
                p99: supports(all.len(), 0.99).then(|| share(0.99)),
                t_max: latency(slot.max),
            }
        })
    }

    /// Returns the messages that were kept one by one, likewise.
    pub(crate) fn kept(&self, origin: u64, reported: Reported) -> impl Iterator<Item = Kept> {
        self.first.iter().map(move |it| Kept {
            sent: self.since(origin, it.sent),
            latency: self.microseconds(it.latency) / reported.divisor(),
            service: self.microseconds(it.service) / reported.divisor(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: Reported = Reported::FullRoundTrip;

    /// A timeline of a clock of 1 ns per tick.
    fn timeline(rounds: u32, most: u64) -> Timeline {
        Timeline::new(Clock::monotonic(), rounds, most)
    }

    #[test]
    fn a_spike_is_in_the_slot_of_its_time() {
        let mut line = timeline(10, 0);
        line.begin(Part::Messages(1000));
        for number in 0..1000 {
            let latency = if number == 345 { 90_000 } else { 2000 };
            line.record(10_000 + number * 2000, latency, latency);
        }
        let points: Vec<Point> = line.points(10_000, FULL).collect();
        assert_eq!(points.len(), 10);
        assert!(
            points
                .iter()
                .all(|it| it.samples == 100 && it.p99.is_none())
        );
        let spikes: Vec<f64> = (points.iter().filter(|it| it.t_max > 3.0))
            .map(|it| it.begin)
            .collect();
        assert_eq!(spikes, [600.0]);
        assert_eq!(points[3].t_max, 90.0);
        assert!((points[3].t_typical - 2.0).abs() < 0.02, "{points:?}");
        assert_eq!(line.span(), Some((10_000, 10_000 + 999 * 2000)));
    }

    #[test]
    fn slots_of_time_end_by_the_clock_and_what_comes_later_is_in_the_last_one() {
        let mut line = timeline(50, 0);
        line.begin(Part::Time(Duration::from_micros(20)));
        // Two slots of 10 us. Nothing is sent for a while after the second message.
        for sent in [1000, 2000, 50_000, 51_000, 99_000] {
            line.record(sent, 500, 500);
        }
        let points: Vec<Point> = line.points(1000, Reported::HalfRoundTrip).collect();
        let seen: Vec<_> = points.iter().map(|it| (it.begin, it.samples)).collect();
        assert_eq!(seen, [(0.0, 2), (49.0, 3)]);
        assert_eq!(points[0].t_max, 0.25);
    }

    #[test]
    fn a_percentile_of_a_slot_needs_ten_samples_above_it() {
        let mut line = timeline(100, 0);
        for (count, has) in [(999, false), (1000, true)] {
            line.begin(Part::Messages(count));
            (0..count).for_each(|number| line.record(number, 1000 + number, 0));
            let points: Vec<Point> = line.points(0, FULL).collect();
            assert_eq!((points.len(), points[0].p99.is_some()), (1, has));
        }
    }

    #[test]
    fn the_first_messages_are_kept_and_memory_never_grows() {
        let mut line = timeline(1, 3);
        let capacity = line.first.capacity();
        for _ in 0..2 {
            line.begin(Part::Messages(5));
            (0..5).for_each(|number| line.record(100 + number, 1000, 800));
            let kept: Vec<Kept> = line.kept(100, FULL).collect();
            let last = Kept {
                sent: 0.002,
                latency: 1.0,
                service: 0.8,
            };
            assert_eq!((kept.len(), kept[2]), (3, last));
            assert_eq!(line.first.capacity(), capacity);
        }
        line.begin(Part::Messages(5));
        assert_eq!((line.span(), line.points(0, FULL).count()), (None, 0));
    }
}
