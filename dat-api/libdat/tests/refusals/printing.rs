//! Runs a test in a process that prints causes, and reads what it prints.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::process::Command;

use dat::abi::{DAT_HANDLE, DAT_RETURN};
use dat_api::{DatReturn, ReturnType, Subtype};

use crate::emulator::{fabric, launcher};
use crate::given::given;

/// Set in a test that was started again.
const INSIDE: &str = "LIBDAT_TEST_INSIDE";

/// Runs `test` in a process with `DAT_DBG_TYPE=1`, on an emulated device of its
/// own or on the given one; `name` is the path of the calling test in `refusals`.
pub(crate) fn printing(name: &str, test: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        return test();
    }
    let this = std::env::current_exe().expect("this binary has a path");
    let mut command = match given() {
        Some(_) => Command::new(this),
        None => {
            let mut command = Command::new(launcher());
            command.args(["run", "--fabric", &fabric(), "--"]).arg(this);
            command
        }
    };
    let output = command
        .args([
            "--exact",
            &format!("refusals::{name}"),
            "--nocapture",
            "--test-threads=1",
        ])
        .env(INSIDE, "1")
        .env("DAT_DBG_TYPE", "1")
        .env_remove("DAT_DBG_DEST")
        // Refuses what the default tolerates.
        .env("DAT_STRICT", "1")
        .output()
        .expect("the process runs");
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && stdout.contains("1 passed"),
        "{name}: {}\n{stdout}\n{stderr}",
        output.status
    );
}

/// Returns the result of a call, and what it prints on standard output.
pub(crate) fn printed<R>(call: impl FnOnce() -> R) -> (R, String) {
    std::io::stdout().flush().expect("standard output");
    // SAFETY: the descriptors are open, and new ones are owned by the files.
    let (mut file, saved) = unsafe {
        let file = libc::memfd_create(c"printed".as_ptr(), 0);
        let saved = libc::dup(1);
        assert!(file >= 0 && saved >= 0);
        (File::from_raw_fd(file), File::from_raw_fd(saved))
    };
    // SAFETY: both descriptors are open.
    assert_eq!(unsafe { libc::dup2(file.as_raw_fd(), 1) }, 1);
    let result = call();
    std::io::stdout().flush().expect("standard output");
    // SAFETY: both descriptors are open.
    assert_eq!(unsafe { libc::dup2(saved.as_raw_fd(), 1) }, 1);
    let mut text = String::new();
    file.rewind().expect("a file in memory");
    file.read_to_string(&mut text).expect("text");
    (result, text)
}

/// Asserts that a call with this first handle is refused with a code, in one line
/// that contains all of `expected`.
#[track_caller]
pub(crate) fn refused(
    (call, label, handle): (&str, &str, DAT_HANDLE),
    (kind, subtype): (ReturnType, Subtype),
    expected: &[&str],
    body: impl FnOnce() -> DAT_RETURN,
) {
    let subject = format!("({label} {:#x})", handle.addr());
    refused_on((call, &subject), (kind, subtype), expected, body);
}

/// As [`refused`], for a call on any subject.
#[track_caller]
pub(crate) fn refused_on(
    (call, subject): (&str, &str),
    (kind, subtype): (ReturnType, Subtype),
    expected: &[&str],
    body: impl FnOnce() -> DAT_RETURN,
) {
    let (answer, text) = printed(body);
    let code = DatReturn::error(kind, subtype);
    assert_eq!(DatReturn::from_bits(answer), code, "{call}: {text}");
    is_one_line(
        &text,
        &format!("libdat: {call}{subject}: {code}: "),
        expected,
    );
}

/// Asserts that the text is one line that begins with `head` and has all of
/// `expected` after it.
#[track_caller]
pub(crate) fn is_one_line(text: &str, head: &str, expected: &[&str]) {
    let cause = text
        .strip_suffix('\n')
        .and_then(|line| line.strip_prefix(head))
        .unwrap_or_else(|| panic!("{text:?} is not a line that begins with {head:?}"));
    assert!(!cause.contains('\n'), "one line: {text}");
    for needle in expected {
        assert!(cause.contains(needle), "no {needle:?} in: {text}");
    }
}
