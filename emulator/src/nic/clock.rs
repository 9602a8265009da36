//! The device's clock, which is in the time stamps of completions.

use super::options::Nanos;
use super::spec::CLOCK_KHZ;

/// Time that passes between two completions, at least: less than a tick, so that
/// some of them have the same stamp.
const PACE: Nanos = 10;

/// Returns the ticks of the device's clock up to a time.
#[must_use]
pub const fn ticks(time: Nanos) -> u64 {
    const _: () = assert!(CLOCK_KHZ * 64 == 5 * 1_000_000);
    time / 64 * 5 + time % 64 * 5 / 64
}

/// The time stamps of completions. They never go back. The time that the NIC is told
/// is the same for one round of work, so each completion moves the clock on.
#[derive(Debug)]
pub(super) struct Clock {
    /// Time stands still unless a test lets it pass.
    stepped: bool,
    /// The NIC's time of the last completion, and what its stamp says.
    now: Nanos,
    last: Nanos,
}

impl Clock {
    pub(super) fn new(stepped: bool) -> Self {
        Self {
            stepped,
            now: 0,
            last: 0,
        }
    }

    /// Returns the stamp of a completion that is made now.
    pub(super) fn stamp(&mut self, now: Nanos) -> u64 {
        let passed = now.saturating_sub(self.now);
        self.now = now;
        self.last = match self.stepped {
            // Ahead of the time, by what the completions have moved it.
            true => self.last.saturating_add(passed.max(PACE)),
            false => now.max(self.last.saturating_add(PACE)),
        };
        ticks(self.last)
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
    fn completions_of_one_moment_are_apart_but_for_those_of_one_tick() {
        for stepped in [false, true] {
            let mut clock = Clock::new(stepped);
            let stamps: Vec<u64> = (0..6).map(|_| clock.stamp(1)).collect();
            assert_eq!(stamps, [0, 1, 2, 3, 3, 4], "stepped: {stepped}");
        }
    }

    #[test]
    fn stamps_do_not_run_away_from_a_time_that_passes() {
        let mut clock = Clock::new(false);
        for round in 1..1000 {
            let now = 6400 * round;
            assert_eq!(clock.stamp(now), 500 * round);
            (0..5).for_each(|_| _ = clock.stamp(now));
            // Of an earlier round.
            assert!(clock.stamp(now - 100) > 500 * round);
        }
    }

    #[test]
    fn time_that_a_test_lets_pass_is_in_the_stamps() {
        let mut clock = Clock::new(true);
        (0..1000).for_each(|_| _ = clock.stamp(1));
        for step in 0..100 {
            let before = clock.stamp(1 + 6400 * step);
            let after = clock.stamp(1 + 6400 * (step + 1));
            assert_eq!(after - before, 500);
        }
    }
}
