//! `DAT_DBG_TYPE` and `DAT_DBG_DEST`: why calls fail, for people.
//!
//! Nothing is printed unless bit 0x1 (errors) of `DAT_DBG_TYPE` is set. Then
//! it goes where `DAT_DBG_DEST` says: 1 the standard output, which is also
//! the default, 2 syslog, 3 both. Both are read once. Posting and taking
//! events never print.

use std::ffi::CString;
use std::io::Write;
use std::sync::OnceLock;

use dat_api::DatError;

/// Bits of `DAT_DBG_TYPE`.
const ERRORS: u32 = 0x1;
/// Bits of `DAT_DBG_DEST`.
const STDOUT: u32 = 1;
const SYSLOG: u32 = 2;

/// Where errors go; 0 for nowhere.
fn destination() -> u32 {
    static DESTINATION: OnceLock<u32> = OnceLock::new();
    *DESTINATION.get_or_init(|| {
        let number = |name| std::env::var(name).ok().and_then(|text| c_number(&text));
        choose(number("DAT_DBG_TYPE"), number("DAT_DBG_DEST"))
    })
}

fn choose(kinds: Option<u32>, places: Option<u32>) -> u32 {
    if kinds.unwrap_or(0) & ERRORS == 0 {
        return 0;
    }
    places.unwrap_or(STDOUT) & (STDOUT | SYSLOG)
}

/// A number as C writes it: decimal, octal or hexadecimal.
fn c_number(text: &str) -> Option<u32> {
    let text = text.trim();
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None if text.len() > 1 && text.starts_with('0') => (&text[1..], 8),
        None => (text, 10),
    };
    u32::from_str_radix(digits, radix).ok()
}

/// Tells of a failed call.
pub(super) fn failed(call: &str, error: &DatError) {
    let destination = destination();
    if destination != 0 {
        tell(destination, call, error);
    }
}

#[cold]
fn tell(destination: u32, call: &str, error: &DatError) {
    let line = format!("libdat: {call}: {error}");
    if destination & STDOUT != 0 {
        // A closed standard output is not a reason to fail the call otherwise.
        let _ = writeln!(std::io::stdout(), "{line}");
    }
    if destination & SYSLOG != 0
        && let Ok(line) = CString::new(line)
    {
        // SAFETY: both are C strings, and the format takes one of them.
        unsafe { libc::syslog(libc::LOG_ERR, c"%s".as_ptr(), line.as_ptr()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_told_only_if_asked_for() {
        assert_eq!(choose(None, None), 0);
        assert_eq!(choose(None, Some(3)), 0);
        assert_eq!(choose(Some(0xfe), Some(3)), 0);
        assert_eq!(choose(Some(1), None), STDOUT);
        assert_eq!(choose(Some(0xff), Some(2)), SYSLOG);
        assert_eq!(choose(Some(1), Some(0)), 0);
        assert_eq!(choose(Some(1), Some(7)), STDOUT | SYSLOG);
    }

    #[test]
    fn numbers_are_written_as_in_c() {
        assert_eq!(c_number("255"), Some(255));
        assert_eq!(c_number("0xff"), Some(255));
        assert_eq!(c_number(" 0X10 "), Some(16));
        assert_eq!(c_number("010"), Some(8));
        assert_eq!(c_number("0"), Some(0));
        assert_eq!(c_number("ff"), None);
        assert_eq!(c_number(""), None);
    }
}
