//! The time source of the measuring loops: the CPU's time-stamp counter where
//! it can be trusted, else `CLOCK_MONOTONIC`.
//!
//! The counter is trusted if the CPU says that it is invariant (CPUID leaf
//! 0x8000_0007, EDX bit 8: same rate in every power state, running on through
//! the idle ones) and if two calibrations against `CLOCK_MONOTONIC` agree.
//! The choice is made once; a loop takes the clock as a copied value.

use std::fmt;
use std::time::{Duration, Instant};

/// How long one calibration looks at both clocks.
const CALIBRATION: Duration = Duration::from_millis(20);
/// How far two calibrations may lie apart, relative.
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
    /// Chooses and calibrates; takes about twice `CALIBRATION`.
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

    /// The clock that is always there.
    pub(crate) fn monotonic() -> Self {
        Self {
            source: Source::Monotonic,
            nanoseconds_per_tick: 1.0,
        }
    }

    /// The time now, in ticks.
    #[inline(always)]
    pub(crate) fn now(&self) -> u64 {
        match self.source {
            #[cfg(target_arch = "x86_64")]
            Source::TimeStampCounter => counter::read(),
            Source::Monotonic => monotonic_nanoseconds(),
        }
    }

    pub(crate) fn nanoseconds_per_tick(&self) -> f64 {
        self.nanoseconds_per_tick
    }

    /// Ticks in a duration, rounded.
    pub(crate) fn ticks(&self, duration: Duration) -> u64 {
        // A float to integer cast saturates; a run of centuries ends late, not early.
        (duration.as_secs_f64() * 1e9 / self.nanoseconds_per_tick).round() as u64
    }

    /// What one reading costs, in nanoseconds: the median of many.
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

    /// Short name for result files.
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
            Source::Monotonic => write!(f, "CLOCK_MONOTONIC (no trustworthy time-stamp counter)"),
        }
    }
}

#[inline(always)]
fn monotonic_nanoseconds() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is a live, writable timespec of this frame; CLOCK_MONOTONIC
    // exists on every Linux, so the call cannot fail and always fills it.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    // Both fields are positive: the clock starts at boot.
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

    /// Not serialised: one timestamp is taken per iteration, and iterations are
    /// ordered by the round trip itself.
    #[inline(always)]
    pub(super) fn read() -> u64 {
        // SAFETY: RDTSC exists on every x86-64 CPU; Linux lets user code execute
        // it unless prctl(PR_SET_TSC) forbids, which nothing here calls.
        unsafe { _rdtsc() }
    }

    /// Nanoseconds per tick, by both clocks over the same stretch.
    pub(super) fn calibrate() -> f64 {
        let (start, first) = paired_reading();
        while start.elapsed() < CALIBRATION {}
        let (end, last) = paired_reading();
        (end - start).as_nanos() as f64 / last.wrapping_sub(first) as f64
    }

    /// Both clocks at one moment: the tightest of several attempts, so that an
    /// interrupt between the two readings does not count.
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
    fn calibrated_clock_agrees_with_the_system_clock() {
        let clock = Clock::calibrate();
        let (start, ticks) = (Instant::now(), clock.now());
        while start.elapsed() < Duration::from_millis(30) {}
        let measured = clock.now().wrapping_sub(ticks) as f64 * clock.nanoseconds_per_tick();
        let elapsed = start.elapsed().as_nanos() as f64;
        // Preempted between the two readings of an end, they may differ; by 1 % never without cause.
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
    fn the_fallback_never_runs_backwards() {
        let clock = Clock::monotonic();
        let mut last = clock.now();
        for _ in 0..10_000 {
            let now = clock.now();
            assert!(now >= last);
            last = now;
        }
    }
}
