//! Seconds since 1970 as date and time (UTC).

/// Returns `2026-11-27 16:40:05 UTC`.
pub(super) fn utc(seconds: u64) -> String {
    const DAY: u64 = 86_400;
    let (mut year, mut days) = (1970u64, seconds / DAY);
    while days >= length_of_year(year) {
        days -= length_of_year(year);
        year += 1;
        if year > 9999 {
            return format!("{seconds} s after 1970");
        }
    }
    let february = length_of_year(year) - 337;
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    let time = seconds % DAY;
    let (hours, minutes, rest) = (time / 3600, time / 60 % 60, time % 60);
    format!(
        "{year}-{month:02}-{:02} {hours:02}:{minutes:02}:{rest:02} UTC",
        days + 1
    )
}

fn length_of_year(year: u64) -> u64 {
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    365 + u64::from(is_leap)
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
        assert!(utc(u64::MAX).ends_with("after 1970"));
    }
}
