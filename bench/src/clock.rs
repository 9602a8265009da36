//! The clock of the measuring loops: the CPU's time-stamp counter (TSC) where
//! it is reliable, else `CLOCK_MONOTONIC`.
//!
//! The TSC is used if CPUID says that it is invariant (leaf 0x8000_0007, EDX
//! bit 8: the same rate in every power state, and running in the idle ones)
//! and if two calibrations against `CLOCK_MONOTONIC` agree.
//! [`Clock::calibrate`] chooses once; the loops use a copy of the clock.

use std::fmt;
use std::time::{Duration, Instant};

/// Length of one calibration.
const CALIBRATION: Duration = Duration::from_millis(20);
/// Largest relative difference of two calibrations.
const TOLERANCE: f64 = 1e-4;

/// A calibrated clock. Ticks are only meaningful as differences.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    source: Source,
    nanoseconds_per_tick: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    #[cfg(target_arch = "x86_64")]
    TimeStampCounter,
    Monotonic,
}

impl Clock {
    /// Chooses and calibrates the clock. Takes about twice [`CALIBRATION`].
    pub(crate) fn calibrate() -> Self {
        #[cfg(target_arch = "x86_64")]
        if counter::is_invariant() {
            let (first, second) = (counter::calibrate(), counter::calibrate());
            if (first / second - 1.0).abs() < TOLERANCE {
                return Self {
                    source: Source::TimeStampCounter,
                    nanoseconds_per_tick: (first + second) / 2.0,
                };
            }
        }
        Self::monotonic()
    }

    pub(crate) fn monotonic() -> Self {
        Self {
            source: Source::Monotonic,
            nanoseconds_per_tick: 1.0,
        }
    }

    /// Returns the time in ticks.
    #[inline(always)]
    pub(crate) fn now(&self) -> u64 {
        match self.source {
            #[cfg(target_arch = "x86_64")]
            Source::TimeStampCounter => counter::read(),
            Source::Monotonic => kernel_nanoseconds(libc::CLOCK_MONOTONIC),
        }
    }

    pub(crate) fn nanoseconds_per_tick(&self) -> f64 {
        self.nanoseconds_per_tick
    }

    /// Returns the ticks of a duration, rounded.
    pub(crate) fn ticks(&self, duration: Duration) -> u64 {
        // The cast saturates, so a duration that is too long does not become short.
        (duration.as_secs_f64() * 1e9 / self.nanoseconds_per_tick).round() as u64
    }

    /// Measures the cost of one [`Clock::now`] in nanoseconds: the median of 1001.
    pub(crate) fn reading_cost(&self) -> f64 {
        let mut costs: Vec<u64> = (0..1001)
            .map(|_| {
                let before = self.now();
                self.now().wrapping_sub(before)
            })
            .collect();
        costs.sort_unstable();
        costs[costs.len() / 2] as f64 * self.nanoseconds_per_tick
    }

    /// Returns the name in result files.
    pub(crate) fn name(&self) -> &'static str {
        match self.source {
            #[cfg(target_arch = "x86_64")]
            Source::TimeStampCounter => "tsc",
            Source::Monotonic => "clock_monotonic",
        }
    }
}

impl fmt::Display for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.source {
            #[cfg(target_arch = "x86_64")]
            Source::TimeStampCounter => write!(
                f,
                "time-stamp counter at {:.3} GHz, calibrated against CLOCK_MONOTONIC",
                1.0 / self.nanoseconds_per_tick
            ),
            Source::Monotonic => write!(
                f,
                "CLOCK_MONOTONIC (the time-stamp counter is absent or not invariant)"
            ),
        }
    }
}

/// Returns the time of one of the kernel's clocks, which every Linux has.
#[inline(always)]
pub(crate) fn kernel_nanoseconds(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is a live, writable timespec of this frame; the clock exists, so the call
    // cannot fail and always fills it.
    unsafe { libc::clock_gettime(clock, &raw mut now) };
    // Both fields are positive: clocks start at boot, or with a thread.
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(target_arch = "x86_64")]
mod counter {
    use super::{CALIBRATION, Instant};
    use core::arch::x86_64::{__cpuid, _rdtsc};

    pub(super) fn is_invariant() -> bool {
        const POWER_MANAGEMENT: u32 = 0x8000_0007;
        const INVARIANT: u32 = 1 << 8;
        __cpuid(0x8000_0000).eax >= POWER_MANAGEMENT
            && __cpuid(POWER_MANAGEMENT).edx & INVARIANT != 0
    }

    /// Reads the TSC, not serialised: a loop reads it once per iteration, and the
    /// round trip itself orders the iterations.
    #[inline(always)]
    pub(super) fn read() -> u64 {
        // SAFETY: every x86-64 CPU has RDTSC, and Linux allows it in user space
        // unless prctl(PR_SET_TSC) forbids it, which this program does not call.
        unsafe { _rdtsc() }
    }

    /// Returns nanoseconds per tick, from readings of both clocks.
    pub(super) fn calibrate() -> f64 {
        let (start, first) = paired_reading();
        while start.elapsed() < CALIBRATION {}
        let (end, last) = paired_reading();
        (end - start).as_nanos() as f64 / last.wrapping_sub(first) as f64
    }

    /// Reads both clocks at nearly the same time: the closest of 16 attempts, so
    /// that an interrupt between the two readings has no effect.
    fn paired_reading() -> (Instant, u64) {
        (0..16)
            .map(|_| {
                let before = read();
                let now = Instant::now();
                let after = read();
                (after.wrapping_sub(before), now, before.midpoint(after))
            })
            .min_by_key(|&(spread, ..)| spread)
            .map(|(_, now, middle)| (now, middle))
            .expect("the range is not empty")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_calibrated_clock_agrees_with_the_system_clock() {
        let clock = Clock::calibrate();
        let (start, ticks) = (Instant::now(), clock.now());
        while start.elapsed() < Duration::from_millis(30) {}
        let measured = clock.now().wrapping_sub(ticks) as f64 * clock.nanoseconds_per_tick();
        let elapsed = start.elapsed().as_nanos() as f64;
        // `elapsed` has the outer two readings, so `measured` exceeds it by the calibration's error at most.
        assert!(
            measured > 29.7e6 && measured <= elapsed * 1.01,
            "{measured} of {elapsed}"
        );
    }

    #[test]
    fn ticks_and_nanoseconds_are_inverse() {
        let clock = Clock::calibrate();
        let ticks = clock.ticks(Duration::from_secs(10));
        let seconds = ticks as f64 * clock.nanoseconds_per_tick() / 1e9;
        assert!((seconds - 10.0).abs() < 1e-6, "{seconds}");
    }

    #[test]
    fn the_monotonic_clock_never_goes_backwards() {
        let clock = Clock::monotonic();
        let mut last = clock.now();
        for _ in 0..10_000 {
            let now = clock.now();
            assert!(now >= last);
            last = now;
        }
    }
}
