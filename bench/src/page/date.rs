//! Seconds since 1970 as date and time (UTC).

use std::time::{Duration, UNIX_EPOCH};

/// Returns `2026-11-27 16:40:05 UTC`.
pub(super) fn utc(seconds: u64) -> String {
    /// The last second of the year 9999.
    const LAST: u64 = 253_402_300_799;
    if seconds > LAST {
        return format!("{seconds} s after 1970");
    }
    let time = humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(seconds));
    time.to_string().replace('T', " ").replace('Z', " UTC")
}

#[cfg(test)]
mod tests {
    use super::utc;

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(utc(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(utc(951_782_399), "2000-02-28 23:59:59 UTC");
        assert_eq!(utc(951_782_400), "2000-02-29 00:00:00 UTC");
        assert_eq!(utc(1_795_787_986), "2026-11-27 13:59:46 UTC");
        assert_eq!(utc(4_107_542_400), "2100-03-01 00:00:00 UTC");
        assert!(utc(253_402_300_799).starts_with("9999-12-31 23:59:59"));
        assert!(utc(253_402_300_800).ends_with("after 1970"));
        assert!(utc(u64::MAX).ends_with("after 1970"));
    }
}
