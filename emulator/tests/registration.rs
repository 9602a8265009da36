//! Programs that unmap or replace registered memory.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{self, finish, run};
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
    let output = finish(stale(&[], &program, "legal")).expect_success("legal");
    assert!(output.contains(": success, read N"), "{output}");
    assert!(!output.contains("mlx5-emu:"), "{output}");
}
