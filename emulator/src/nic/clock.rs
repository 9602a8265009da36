//! The device's clock, which provides the timestamps of completions.

use crate::spec::{CLOCK_KHZ, Nanos};

/// Minimum time in nanoseconds between two completions: less than a tick, so that
/// some completions have equal timestamps.
const PACE: Nanos = 10;

/// Converts a time to ticks of the device's clock.
#[must_use]
pub const fn ticks(time: Nanos) -> u64 {
    const _: () = assert!(CLOCK_KHZ * 64 == 5 * 1_000_000);
    time / 64 * 5 + time % 64 * 5 / 64
}

/// Generates the timestamps of completions, which never decrease. The NIC's time is
/// the same during one round of work, so every completion advances this clock.
#[derive(Debug)]
pub(super) struct Clock {
    /// Whether a test controls the time.
    stepped: bool,
    /// The NIC's time at the last completion, and the time of its timestamp.
    now: Nanos,
    last: Nanos,
    /// What is added to timestamps, in ticks.
    offset: u64,
}

impl Clock {
    pub(super) fn new(stepped: bool, offset: u64) -> Self {
        Self {
            stepped,
            offset,
            now: 0,
            last: 0,
        }
    }

    /// Returns the timestamp of a completion that is generated now.
    pub(super) fn timestamp(&mut self, now: Nanos) -> u64 {
        let passed = now.saturating_sub(self.now);
        self.now = now;
        self.last = match self.stepped {
            // Ahead of the NIC's time by the steps of the completions.
            true => self.last.saturating_add(passed.max(PACE)),
            false => now.max(self.last.saturating_add(PACE)),
        };
        ticks(self.last).wrapping_add(self.offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_is_twelve_point_eight_nanoseconds() {
        assert_eq!(ticks(0), 0);
        assert_eq!((ticks(12), ticks(13), ticks(25), ticks(26)), (0, 1, 1, 2));
        assert_eq!(ticks(64_000_000_000), 5_000_000_000);
        for ns in [1, 999, 123_456_789, 1 << 40, (1 << 59) + 7] {
            let exact = u128::from(ns) * u128::from(CLOCK_KHZ) / 1_000_000;
            assert_eq!(u128::from(ticks(ns)), exact, "{ns}");
        }
        assert_eq!(ticks(u64::MAX), 0x13ff_ffff_ffff_ffff);
    }

    #[test]
    fn simultaneous_completions_have_increasing_timestamps() {
        for stepped in [false, true] {
            let mut clock = Clock::new(stepped, 0);
            let stamps: Vec<u64> = (0..6).map(|_| clock.timestamp(1)).collect();
            assert_eq!(stamps, [0, 1, 2, 3, 3, 4], "stepped: {stepped}");
        }
    }

    #[test]
    fn an_offset_is_added_to_every_timestamp() {
        let mut clock = Clock::new(true, (1 << 32) - 2);
        let stamps: Vec<u64> = (0..4).map(|_| clock.timestamp(1)).collect();
        assert_eq!(stamps, [0, 1, 2, 3].map(|tick| (1 << 32) - 2 + tick));
    }

    #[test]
    fn timestamps_stay_near_the_time() {
        let mut clock = Clock::new(false, 0);
        for round in 1..1000 {
            let now = 6400 * round;
            assert_eq!(clock.timestamp(now), 500 * round);
            (0..5).for_each(|_| _ = clock.timestamp(now));
            // A time of an earlier round.
            assert!(clock.timestamp(now - 100) > 500 * round);
        }
    }

    #[test]
    fn the_time_of_a_test_shows_in_the_timestamps() {
        let mut clock = Clock::new(true, 0);
        (0..1000).for_each(|_| _ = clock.timestamp(1));
        for step in 0..100 {
            let before = clock.timestamp(1 + 6400 * step);
            let after = clock.timestamp(1 + 6400 * (step + 1));
            assert_eq!(after - before, 500);
        }
    }
}
