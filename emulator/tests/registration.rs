//! Programs that unmap or replace registered memory.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{self, finish, run, skipped};
use crate::restricted::forbid;

fn compiled() -> PathBuf {
    common::compiled("registration/stale.c")
}

/// Returns the launcher with the program, which removes its memory in this way.
fn stale(options: &[&str], program: &Path, how: &str) -> Command {
    let mut command = run(options);
    command.arg(program).arg(how);
    command
}

/// Checks that the output has one report of this call and of the key that was used.
fn assert_reported(output: &str, call: &str) {
    let (_, line) = output.split_once("key ").expect("the program's line");
    let (key, _) = line.split_once(':').expect("a key");
    let reports: Vec<_> = output
        .lines()
        .filter(|it| it.starts_with("mlx5-emu:"))
        .collect();
    let used = format!("by key {key}, but {call} has removed pages 0x");
    assert!(
        matches!(&reports[..], [one] if one.contains(&used)),
        "no single {used:?}: {output}"
    );
}

/// The ways, the calls in reports.
const WAYS: [(&str, &str); 3] = [
    ("munmap", "munmap"),
    ("mmap", "mmap with MAP_FIXED"),
    ("free", "free"),
];

#[test]
fn a_use_of_memory_that_was_replaced_while_registered_is_reported() {
    let program = compiled();
    for (how, call) in WAYS {
        let output = finish(stale(&[], &program, how)).expect_success(how);
        assert!(output.contains(": success, read N"), "{output}");
        assert_reported(&output, call);
        // As in containers.
        let mut command = stale(&[], &program, how);
        forbid(&mut command, libc::SYS_userfaultfd);
        assert_reported(&finish(command).expect_success(how), call);
    }
}

#[test]
fn memory_that_is_deregistered_after_it_was_unmapped_is_not_reported() {
    let program = compiled();
    for options in [&[][..], &["--nasty", "pin"]] {
        let output = finish(stale(options, &program, "legal")).output;
        if cannot_pin(&output) {
            return;
        }
        assert!(output.contains(": success, read N"), "{output}");
        assert!(!output.contains("mlx5-emu:"), "{output}");
    }
}

/// Returns whether memory cannot be pinned here; prints a line if so.
fn cannot_pin(output: &str) -> bool {
    let reason = output.lines().find(|it| it.contains("cannot pin"));
    reason.inspect(|reason| skipped(reason)).is_some()
}

#[test]
fn a_device_that_pins_reads_the_old_pages() {
    let program = compiled();
    for (how, call) in WAYS {
        let output = finish(stale(&["--nasty", "pin"], &program, how)).output;
        if cannot_pin(&output) {
            return;
        }
        assert!(output.contains(": success, read O"), "{how}: {output}");
        assert_reported(&output, call);
    }
}

#[test]
fn a_host_on_which_nothing_can_be_pinned_is_reported_and_no_device_opens() {
    let mut command = stale(&["--nasty", "pin"], &compiled(), "munmap");
    forbid(&mut command, libc::SYS_io_uring_setup);
    let outcome = finish(command);
    assert!(!outcome.status.success(), "{}", outcome.output);
    let words = "cannot pin registered memory for --nasty pin: Operation not permitted";
    assert!(outcome.output.contains(words), "{}", outcome.output);
}
