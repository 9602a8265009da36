//! When a wait ends at the latest.

use core::time::Duration;

/// A point in time that is not known until the wait begins, then absolute.
///
/// [`Deadline::from_micros`] reads no clock, so a wait whose first poll hits
/// need not either; the wait fixes the point when it has to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline(Kind);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// One poll.
    Now,
    /// So many nanoseconds after the wait has begun.
    After(u64),
    /// At that reading of [`monotonic_nanos`].
    At(u64),
    Never,
}

impl Deadline {
    /// One poll and no more.
    pub const NOW: Self = Self(Kind::Now);
    /// As long as it takes.
    pub const NEVER: Self = Self(Kind::Never);

    /// So many microseconds after the wait has begun; 0 is [`Self::NOW`].
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        match micros {
            0 => Self::NOW,
            _ => Self(Kind::After(micros.saturating_mul(1000))),
        }
    }

    /// So long after the wait has begun; 0 is [`Self::NOW`].
    #[must_use]
    pub fn after(duration: Duration) -> Self {
        match u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX) {
            0 => Self::NOW,
            nanos => Self(Kind::After(nanos)),
        }
    }

    /// Whether there is no time at all, whatever the clock says.
    #[must_use]
    pub const fn is_now(&self) -> bool {
        matches!(self.0, Kind::Now)
    }

    /// Whether there is no end, whatever the clock says.
    #[must_use]
    pub const fn is_never(&self) -> bool {
        matches!(self.0, Kind::Never)
    }

    /// Fixes the point, if it is not yet: the wait began at `now`, nanoseconds
    /// of the monotonic clock.
    pub const fn start(&mut self, now: u64) {
        if let Kind::After(nanos) = self.0 {
            self.0 = Kind::At(now.saturating_add(nanos));
        }
    }

    /// Whether it has passed at `now`. One that was not started has not.
    #[must_use]
    pub const fn has_passed(&self, now: u64) -> bool {
        match self.0 {
            Kind::Now => true,
            Kind::At(at) => now >= at,
            Kind::After(_) | Kind::Never => false,
        }
    }

    /// How much time is left at `now`; `None` without end.
    #[must_use]
    pub const fn left(&self, now: u64) -> Option<Duration> {
        match self.0 {
            Kind::Now => Some(Duration::ZERO),
            Kind::After(nanos) => Some(Duration::from_nanos(nanos)),
            Kind::At(at) => Some(Duration::from_nanos(at.saturating_sub(now))),
            Kind::Never => None,
        }
    }
}

/// Nanoseconds of the clock that nobody sets (`CLOCK_MONOTONIC`): some twenty
/// nanoseconds and no system call, where the kernel has a vDSO.
#[must_use]
pub fn monotonic_nanos() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the result is writable. The call cannot fail: every Linux has
    // this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_counted_from_the_start_and_absolute_after_it() {
        let mut deadline = Deadline::from_micros(5);
        assert!(!deadline.is_now() && !deadline.has_passed(u64::MAX));
        deadline.start(1000);
        deadline.start(4000);
        assert!(!deadline.has_passed(5999) && deadline.has_passed(6000));
        assert_eq!(deadline.left(5999), Some(Duration::from_nanos(1)));
        assert_eq!(deadline.left(7000), Some(Duration::ZERO));
        assert_eq!(
            Deadline::after(Duration::from_micros(5)),
            Deadline::from_micros(5)
        );
    }

    #[test]
    fn none_is_now_all_is_never_and_much_does_not_overflow() {
        for mut none in [Deadline::from_micros(0), Deadline::after(Duration::ZERO)] {
            none.start(7);
            assert!(none.is_now() && none.has_passed(0));
            assert_eq!(none.left(0), Some(Duration::ZERO));
        }
        let mut never = Deadline::NEVER;
        never.start(7);
        assert!(!never.has_passed(u64::MAX) && never.left(0).is_none());
        assert!(never.is_never() && !Deadline::NOW.is_never());
        for mut long in [
            Deadline::from_micros(u64::MAX),
            Deadline::after(Duration::MAX),
        ] {
            long.start(u64::MAX - 1);
            assert!(!long.has_passed(u64::MAX - 1));
        }
    }

    #[test]
    fn the_clock_goes_forward_in_nanoseconds() {
        let (before, start) = (monotonic_nanos(), std::time::Instant::now());
        std::thread::sleep(Duration::from_millis(2));
        let passed = monotonic_nanos() - before;
        let most = start.elapsed().as_nanos() as u64;
        assert!(
            passed >= 2_000_000 && passed <= most + 1_000_000,
            "{passed}"
        );
    }
}
