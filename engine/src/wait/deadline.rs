//! The deadline of a wait.

use core::time::Duration;

/// A point in time, which may be relative to the start of the wait until the wait
/// fixes it.
///
/// [`Deadline::from_micros`] reads no clock, so a wait whose first poll hits reads
/// none either; the wait fixes the point when it first needs the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline(Kind);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// One poll only.
    Now,
    /// That many nanoseconds after the wait has begun.
    After(u64),
    /// When [`monotonic_nanos`] returns that value.
    At(u64),
    Never,
}

impl Deadline {
    /// One poll only.
    pub const NOW: Self = Self(Kind::Now);
    /// No deadline.
    pub const NEVER: Self = Self(Kind::Never);

    /// Returns the deadline that many microseconds after the wait has begun; 0 is
    /// [`Self::NOW`].
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        match micros {
            0 => Self::NOW,
            _ => Self(Kind::After(micros.saturating_mul(1000))),
        }
    }

    /// Returns the deadline that long after the wait has begun; 0 is [`Self::NOW`].
    #[must_use]
    pub fn after(duration: Duration) -> Self {
        match u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX) {
            0 => Self::NOW,
            nanos => Self(Kind::After(nanos)),
        }
    }

    /// Returns whether this is [`Self::NOW`].
    #[must_use]
    pub const fn is_now(&self) -> bool {
        matches!(self.0, Kind::Now)
    }

    /// Returns whether this is [`Self::NEVER`].
    #[must_use]
    pub const fn is_never(&self) -> bool {
        matches!(self.0, Kind::Never)
    }

    /// Fixes a relative deadline: the wait began at `now`, in nanoseconds of the
    /// monotonic clock.
    pub const fn start(&mut self, now: u64) {
        if let Kind::After(nanos) = self.0 {
            self.0 = Kind::At(now.saturating_add(nanos));
        }
    }

    /// Returns whether the deadline has passed at `now`. A relative deadline that
    /// was not fixed has not passed.
    #[must_use]
    pub const fn has_passed(&self, now: u64) -> bool {
        match self.0 {
            Kind::Now => true,
            Kind::At(at) => now >= at,
            Kind::After(_) | Kind::Never => false,
        }
    }

    /// Returns the time left at `now`; `None` without a deadline.
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

/// Returns the nanoseconds of `CLOCK_MONOTONIC`, which no program can set. Takes
/// about 20 ns, without a system call where the kernel has a vDSO.
#[must_use]
pub fn monotonic_nanos() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the result is writable. The call cannot fail: every Linux has this
    // clock.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relative_deadline_is_fixed_at_the_start_and_then_absolute() {
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
    fn zero_is_now_and_large_times_do_not_overflow() {
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
