//! `DAT_DBG_TYPE` and `DAT_DBG_DEST`: messages about refused calls, and counters.
//!
//! Nothing is printed unless `DAT_DBG_TYPE` has one of two bits:
//!
//! - 0x1: refused calls, one line each, and warnings, such as why a connection request is refused,
//!   or what is wrong with a line of dat.conf;
//! - 0x1000: the counters of an adapter when it is closed (DAPL's bit for
//!   counters).
//!
//! `DAT_DBG_DEST` selects the destinations, by bits: 1 standard output (the default), 2
//! syslog, 4 standard error. Both variables are read once. Posting and taking events come
//! here only after they have decided to refuse the call; an empty queue, an expired
//! timeout and a signal are no refusals.

use std::ffi::{CStr, CString};
use std::io::Write;
use std::sync::OnceLock;

use dat_api::object::counters::Counters;
use dat_api::object::ia::Ia;
use dat_api::{CancellationDisabled, DatReturn, Handle, environment, handle, warnings};

use super::subject::Subject;
use crate::abi::DAT_RETURN;
use crate::version::{self, LIBRARY};

/// Bits of `DAT_DBG_TYPE`.
const ERRORS: u32 = 0x1;
const COUNTERS: u32 = 0x1000;
/// Bits of `DAT_DBG_DEST`.
const STDOUT: u32 = 1;
const SYSLOG: u32 = 2;
const STDERR: u32 = 4;

/// Returns the destination of a kind of message; 0 for none.
fn destination(kind: u32) -> u32 {
    static ASKED: OnceLock<[Option<u32>; 2]> = OnceLock::new();
    let &[kinds, places] = ASKED.get_or_init(|| {
        ["DAT_DBG_TYPE", "DAT_DBG_DEST"]
            .map(|name| c_number(environment::variable(name)?.to_str()?))
    });
    choose(kind, kinds, places)
}

fn choose(kind: u32, kinds: Option<u32>, places: Option<u32>) -> u32 {
    if kinds.unwrap_or(0) & kind == 0 {
        return 0;
    }
    places.unwrap_or(STDOUT) & (STDOUT | SYSLOG | STDERR)
}

/// Parses a number in C's notation: decimal, octal or hexadecimal.
fn c_number(text: &str) -> Option<u32> {
    let text = text.trim();
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None if text.len() > 1 && text.starts_with('0') => (&text[1..], 8),
        None => (text, 10),
    };
    u32::from_str_radix(digits, radix).ok()
}

/// Returns whether refused calls are printed.
pub(super) fn prints_refusals() -> bool {
    destination(ERRORS) != 0
}

/// Prints a refused call, if refused calls are printed; returns its code in C.
#[cold]
pub(super) fn failed(
    call: &str,
    subject: Subject<'_>,
    code: DatReturn,
    cause: &dyn Fn() -> String,
) -> DAT_RETURN {
    let answer = version::code(code);
    let destination = destination(ERRORS);
    if destination != 0 {
        // The names that this version has for the code.
        let name = match version::names(answer) {
            (Some(kind), Some(subtype)) if code.subtype().is_none() => {
                let [kind, subtype] = [kind, subtype].map(CStr::to_string_lossy);
                format!("{kind} ({subtype})")
            }
            _ => code.to_string(),
        };
        let line = one_line(&format!("{LIBRARY}: {call}{subject}: {name}: {}", cause()));
        print_line(destination, libc::LOG_ERR, line);
    }
    answer
}

/// Prints what a call that succeeds has to say, if refused calls are printed.
#[cold]
pub(crate) fn remark(call: &str, text: impl FnOnce() -> String) {
    let destination = destination(ERRORS);
    if destination != 0 {
        let line = one_line(&format!("{LIBRARY}: {call}: {}", text()));
        print_line(destination, libc::LOG_WARNING, line);
    }
}

/// Joins the lines of a message: causes of the engine have the remedy on a second
/// line.
fn one_line(text: &str) -> String {
    text.replace('\n', "; ")
}

/// From the first call on, prints the warnings of the library.
pub(crate) fn follow_library() {
    static FOLLOWED: OnceLock<bool> = OnceLock::new();
    FOLLOWED.get_or_init(|| {
        destination(ERRORS) != 0
            && warnings::forward_to(|line| {
                let line = format!("{LIBRARY}: {line}");
                print_line(destination(ERRORS), libc::LOG_WARNING, line);
            })
    });
}

/// Returns the name and the counters of an adapter that is about to be closed, if
/// they are to be printed.
pub(crate) fn counters(ia: Handle) -> Option<(String, Counters)> {
    if destination(COUNTERS) == 0 {
        return None;
    }
    let ia = handle::pin::<Ia>(ia)?;
    Some((ia.name().to_owned(), ia.counters()))
}

/// Prints the counters of an adapter that has been closed.
pub(crate) fn closed(name: &str, counters: &Counters) {
    let destination = destination(COUNTERS);
    let waits = &counters.waits;
    let line = format!(
        "{LIBRARY}: {name} is closed: {} spins, {} hits, {} blocks, {} spurious wake-ups, {} refused posts",
        waits.spins, waits.hits, waits.blocks, waits.spurious, counters.refused_posts
    );
    print_line(destination, libc::LOG_INFO, line);
}

#[cold]
fn print_line(destination: u32, priority: libc::c_int, line: String) {
    let _held = CancellationDisabled::new();
    if destination & STDOUT != 0 {
        // A closed standard output must not change the return code of the call.
        let _ = writeln!(std::io::stdout(), "{line}");
    }
    if destination & STDERR != 0 {
        let _ = writeln!(std::io::stderr(), "{line}");
    }
    if destination & SYSLOG != 0
        && let Ok(line) = CString::new(line)
    {
        // SAFETY: both are C strings, and the format takes one string.
        unsafe { libc::syslog(priority, c"%s".as_ptr(), line.as_ptr()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_printed_only_if_asked_for() {
        for (kinds, places, expected) in [
            (None, None, 0),
            (None, Some(3), 0),
            (Some(0xfe), Some(3), 0),
            (Some(0x1000), Some(3), 0),
            (Some(1), None, STDOUT),
            (Some(0xff), Some(2), SYSLOG),
            (Some(1), Some(0), 0),
            (Some(1), Some(4), STDERR),
            (Some(1), Some(15), STDOUT | SYSLOG | STDERR),
        ] {
            assert_eq!(
                choose(ERRORS, kinds, places),
                expected,
                "{kinds:?} {places:?}"
            );
        }
        assert_eq!(choose(COUNTERS, Some(1), None), 0);
        assert_eq!(choose(COUNTERS, Some(0x1001), None), STDOUT);
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
