//! The device's clock, which completions are stamped with.
//!
//! The kernel keeps what converts ticks to nanoseconds, and updates it, in a page that
//! libmlx5 maps when it opens the device. A conversion reads the page; it makes no system
//! call.
//!
//! Decision: `docs/decisions/072-time-stamps.md`

use super::context::Context;
use super::device::Device;
use crate::error::{ControlError, ControlErrorKind};
use dv_sys::mlx5dv::{mlx5dv_clock_info, mlx5dv_get_clock_info};
use std::sync::Arc;

/// Converts the time stamps of a device's completions. Clones convert alike.
#[derive(Clone)]
pub struct DeviceClock {
    context: Arc<Context>,
}

impl core::fmt::Debug for DeviceClock {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("DeviceClock").finish_non_exhaustive()
    }
}

const CONVERT: &str = "convert completion time stamps";

impl Device {
    /// Returns the clock that converts the time stamps of this device's completions.
    ///
    /// # Errors
    /// The device is on the verbs path, whose completions have no stamps, or its kernel
    /// driver does not say how to convert them.
    pub fn clock(&self) -> Result<DeviceClock, ControlError> {
        if !self.is_direct() {
            let path = &self.info().path;
            return Err(ControlError::new(
                ControlErrorKind::Unsupported,
                CONVERT,
                format!("the data path is {path}; only completions of the direct path have stamps"),
            )
            .with_remedy("use an mlx5 device, and leave DAT_PATH unset"));
        }
        let clock = DeviceClock {
            context: Arc::clone(&self.context),
        };
        match clock.read() {
            Ok(_) | Err(libc::EBUSY) => Ok(clock),
            Err(errno) => Err(ControlError::new(
                ControlErrorKind::Unsupported,
                CONVERT,
                format!("libmlx5 has no clock information of the device (error {errno})"),
            )
            .with_remedy("use a kernel whose mlx5_ib has the clock page (Linux 4.16 or later)")),
        }
    }
}

impl DeviceClock {
    /// Returns the time of a stamp ([`crate::Arrival::At`]) in nanoseconds since 1970, by the
    /// device's clock as the kernel keeps it. Returns `None` if the stamp cannot be converted:
    /// the kernel was updating the clock information all the time, or the device writes stamps of
    /// a format that is not known.
    ///
    /// The conversion tells stamps apart that are at most half a lap of the device's counter old
    /// (2^40 ticks on Linux: 18 minutes at 1 GHz, almost 4 hours at 78 MHz).
    #[must_use]
    pub fn nanoseconds(&self, stamp: u64) -> Option<u64> {
        match real_time(stamp) {
            Some(time) => time.nanoseconds(),
            None => nanoseconds(&self.read().ok()?, stamp),
        }
    }

    fn read(&self) -> Result<mlx5dv_clock_info, i32> {
        let mut info = mlx5dv_clock_info {
            nsec: 0,
            last_cycles: 0,
            frac: 0,
            mult: 0,
            shift: 0,
            mask: 0,
        };
        // SAFETY: the context is open, and `info` is writable; the call reads a page that
        // libmlx5 keeps mapped as long as the context is open.
        match unsafe { mlx5dv_get_clock_info(self.context.as_ptr(), &raw mut info) } {
            0 => Ok(info),
            errno => Err(errno),
        }
    }
}

/// A stamp of the real-time format: seconds and nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RealTime {
    seconds: u32,
    nanoseconds: u32,
}

/// Returns the parts of a stamp of the real-time format, which newer devices write if so
/// configured. A count of ticks of a nanosecond or longer reaches this only after 146 years;
/// real time has been above it since 2004.
fn real_time(stamp: u64) -> Option<RealTime> {
    (stamp >= 1 << 62).then_some(RealTime {
        seconds: (stamp >> 32) as u32,
        nanoseconds: stamp as u32,
    })
}

impl RealTime {
    fn nanoseconds(self) -> Option<u64> {
        const SECOND: u32 = 1_000_000_000;
        (self.nanoseconds < SECOND)
            .then(|| u64::from(self.seconds) * u64::from(SECOND) + u64::from(self.nanoseconds))
    }
}

/// Converts a count of ticks as `mlx5dv_ts_to_ns` does, without its overflows.
fn nanoseconds(info: &mlx5dv_clock_info, ticks: u64) -> Option<u64> {
    let scaled = |ticks: u64| u128::from(ticks) * u128::from(info.mult);
    let since = ticks.wrapping_sub(info.last_cycles) & info.mask;
    if since <= info.mask / 2 {
        let passed = (scaled(since) + u128::from(info.frac)).checked_shr(info.shift)?;
        info.nsec.checked_add(u64::try_from(passed).ok()?)
    } else {
        let before = info.last_cycles.wrapping_sub(ticks) & info.mask;
        let passed = scaled(before)
            .saturating_sub(u128::from(info.frac))
            .checked_shr(info.shift)?;
        info.nsec.checked_sub(u64::try_from(passed).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dv_sys::mlx5dv::mlx5dv_ts_to_ns;
    use proptest::prelude::*;

    /// As a ConnectX-5 under Linux: 78.125 MHz, a counter of 41 bits.
    fn info() -> mlx5dv_clock_info {
        mlx5dv_clock_info {
            nsec: 1_780_000_000_000_000_000,
            last_cycles: 0x1ff_0000_0000,
            frac: 12_345,
            mult: 0x0199_999a,
            shift: 21,
            mask: (1 << 41) - 1,
        }
    }

    fn reference(info: &mlx5dv_clock_info, ticks: u64) -> u64 {
        let mut info = *info;
        // SAFETY: reads the value that it is given.
        unsafe { mlx5dv_ts_to_ns(&raw mut info, ticks) }
    }

    proptest! {
        /// Before and after the page was updated, and over the end of the counter.
        #[test]
        fn ticks_are_converted_as_libmlx5_does(
            away in -(1_i64 << 34)..1 << 34,
            last_cycles in 0_u64..1 << 41,
            frac in 0_u64..1 << 21,
        ) {
            let info = mlx5dv_clock_info { last_cycles, frac, ..info() };
            let ticks = last_cycles.wrapping_add_signed(away) & info.mask;
            // For less than a tick before, libmlx5 subtracts below 0.
            prop_assume!(away >= 0 || frac <= u64::from(info.mult));
            prop_assert_eq!(nanoseconds(&info, ticks), Some(reference(&info, ticks)));
        }
    }

    #[test]
    fn hours_away_from_the_update_the_product_does_not_overflow() {
        let info = info();
        let hours = 3 * 3600 * 78_125_000;
        let after = nanoseconds(&info, info.last_cycles + hours).expect("a time");
        let before = nanoseconds(&info, info.last_cycles - hours).expect("a time");
        let three_hours = 3 * 3_600_000_000_000_u64;
        assert!(
            (after - info.nsec).abs_diff(three_hours) < 1_000_000,
            "{after}"
        );
        assert!(
            (info.nsec - before).abs_diff(three_hours) < 1_000_000,
            "{before}"
        );
    }

    #[test]
    fn values_that_no_kernel_writes_are_no_time() {
        let info = info();
        let absurd = mlx5dv_clock_info { shift: 128, ..info };
        assert_eq!(nanoseconds(&absurd, 7), None);
        let absurd = mlx5dv_clock_info {
            nsec: u64::MAX,
            ..info
        };
        assert_eq!(nanoseconds(&absurd, info.last_cycles + 99), None);
        let absurd = mlx5dv_clock_info { nsec: 1, ..info };
        assert_eq!(nanoseconds(&absurd, info.last_cycles - 99), None);
    }

    #[test]
    fn stamps_of_the_real_time_format_are_recognised() {
        let seconds = 1_780_000_000_u64;
        let time = real_time(seconds << 32 | 999_999_999).expect("real time");
        assert_eq!(time.nanoseconds(), Some(1_780_000_000_999_999_999));
        let garbage = real_time(seconds << 32 | 1_000_000_000).expect("no ticks");
        assert_eq!(garbage.nanoseconds(), None);
        // Ten years of a device with the fastest clock.
        assert_eq!(real_time(10 * 365 * 86_400 * 1_000_000_000), None);
    }
}
