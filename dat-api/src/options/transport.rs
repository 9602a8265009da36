//! The keys of the network: what every connection of an adapter uses.
//!
//! They have no environment variables: a value is right for one port of one device, which an entry
//! of dat.conf names, and a variable would set it for all.

use dat_engine::{Mtu, TransportOptions};

/// The keys, and the values that each accepts.
pub(crate) const KEYS: [(&str, &str); 8] = [
    ("sl", "0 to 15"),
    ("traffic_class", "0 to 255, which is DSCP * 4 + ECN"),
    ("mtu", "256, 512, 1024, 2048 or 4096 bytes"),
    (
        "timeout",
        "0 to 31, which means 4.096 us * 2^N; 0 waits for ever",
    ),
    ("retry", "0 to 7"),
    ("rnr_retry", "0 to 7; 7 retries for ever"),
    (
        "rnr_timer",
        "0 to 31, a code of InfiniBand: 1 is 0.01 ms, 12 is 0.64 ms, 0 is 655.36 ms",
    ),
    (
        "pkey",
        "a P_Key of the port's table, 0x0001 to 0xffff without 0x8000",
    ),
];

/// Sets the option of one key. Returns `false` if this is not a key of the table.
///
/// # Errors
/// What is wrong with the value, as text.
pub(super) fn set(options: &mut TransportOptions, key: &str, value: &str) -> Result<bool, String> {
    let Some((_, expected)) = KEYS.iter().find(|(name, _)| *name == key) else {
        return Ok(false);
    };
    let wrong = || format!("invalid value \"{value}\" of the key {key}: expected {expected}");
    let number = number(value).ok_or_else(wrong)?;
    let up_to = |most: u8| match u8::try_from(number) {
        Ok(number) if number <= most => Ok(Some(number)),
        _ => Err(wrong()),
    };
    match key {
        "sl" => options.sl = up_to(15)?,
        "traffic_class" => options.traffic_class = up_to(255)?,
        "mtu" => options.mtu = Some(Mtu::from_bytes(number).ok_or_else(wrong)?),
        "timeout" => options.timeout = up_to(31)?,
        "retry" => options.retry = up_to(7)?,
        "rnr_retry" => options.rnr_retry = up_to(7)?,
        "rnr_timer" => options.rnr_timer = up_to(31)?,
        "pkey" => match u16::try_from(number) {
            // The lower 15 bits are the number of the partition, which is never 0.
            Ok(number) if number & 0x7fff != 0 => options.pkey = Some(number),
            _ => return Err(wrong()),
        },
        _ => return Ok(false),
    }
    Ok(true)
}

/// Parses a decimal number, or a hexadecimal one after `0x`.
fn number(text: &str) -> Option<u32> {
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None => (text, 10),
    };
    let plain = digits.bytes().all(|byte| byte.is_ascii_alphanumeric());
    plain.then(|| u32::from_str_radix(digits, radix).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(key: &str, value: impl AsRef<str>) -> Result<TransportOptions, String> {
        let mut options = TransportOptions::default();
        assert!(set(&mut options, key, value.as_ref())?, "{key} is a key");
        Ok(options)
    }

    #[test]
    fn the_least_and_the_largest_value_of_each_key_are_accepted() {
        let good = |key, value: &str| with(key, value).expect("a good value");
        assert_eq!(good("sl", "0").sl, Some(0));
        assert_eq!(good("sl", "15").sl, Some(15));
        assert_eq!(good("traffic_class", "0").traffic_class, Some(0));
        assert_eq!(good("traffic_class", "106").traffic_class, Some(106));
        assert_eq!(good("traffic_class", "0xff").traffic_class, Some(255));
        for bytes in [256, 512, 1024, 2048, 4096] {
            let options = with("mtu", bytes.to_string()).expect("an MTU");
            assert_eq!(options.mtu.map(Mtu::bytes), Some(bytes));
        }
        assert_eq!(good("timeout", "0").timeout, Some(0));
        assert_eq!(good("timeout", "31").timeout, Some(31));
        assert_eq!(good("retry", "7").retry, Some(7));
        assert_eq!(good("rnr_retry", "0").rnr_retry, Some(0));
        assert_eq!(good("rnr_timer", "31").rnr_timer, Some(31));
        assert_eq!(good("pkey", "0x8001").pkey, Some(0x8001));
        assert_eq!(good("pkey", "0X7FFF").pkey, Some(0x7fff));
        assert_eq!(good("pkey", "1").pkey, Some(1));
    }

    #[test]
    fn a_wrong_value_is_refused_with_the_key_the_value_and_what_is_expected() {
        let cases = [
            ("sl", "16"),
            ("sl", "-1"),
            ("sl", "+1"),
            ("sl", ""),
            ("sl", "high"),
            ("traffic_class", "256"),
            ("traffic_class", "0x"),
            ("traffic_class", "ef"),
            ("mtu", "1500"),
            ("mtu", "0"),
            ("mtu", "8192"),
            ("timeout", "32"),
            ("timeout", "1s"),
            ("retry", "8"),
            ("rnr_retry", "8"),
            ("rnr_timer", "32"),
            ("pkey", "0"),
            ("pkey", "0x8000"),
            ("pkey", "0x10000"),
            ("pkey", "99999999999"),
        ];
        for (key, value) in cases {
            let cause = with(key, value).expect_err(key);
            let (_, expected) = KEYS.iter().find(|(name, _)| *name == key).expect("a key");
            for part in [key, &format!("\"{value}\""), expected] {
                assert!(cause.contains(part), "{cause}");
            }
        }
        let mut options = TransportOptions::default();
        assert_eq!(set(&mut options, "colour", "red"), Ok(false));
    }
}
