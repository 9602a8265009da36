//! The device across the life of a process: forks, other ways to start a child, and daemons.

use std::io::{Read, Write};
use std::process::Stdio;

use crate::common::{compiled, fabric, finish, run};

/// Runs a case of the program in `life/life.c`.
fn passes(case: &str, options: &[&str]) {
    let mut command = run(&[&["--fabric", &fabric()], options].concat());
    command.arg(compiled("life/life.c")).arg(case);
    finish(command).expect_success(case);
}

#[test]
fn a_forked_child_opens_the_device_that_its_parent_uses() {
    passes("after-use", &[]);
    passes("after-use", &["--face", "write"]);
}

#[test]
fn a_fork_works_while_other_threads_use_and_open_the_device() {
    passes("while-busy", &[]);
}

#[test]
fn children_made_by_other_calls_leave_their_parent_alone() {
    passes("other-calls", &[]);
}

#[test]
fn a_forked_child_uses_rdma_cm_after_its_parent() {
    passes("rdma-cm", &[]);
}

#[test]
fn an_orphan_opens_the_device() {
    passes("orphan", &[]);
}

#[test]
fn a_program_that_closes_descriptors_it_does_not_know_keeps_its_device() {
    passes("close-others", &[]);
}

#[test]
fn posts_work_from_stacks_of_the_documented_size() {
    let program = compiled("life/life.c");
    for (wake, size, options) in [
        ("uffd", "6144", &[][..]),
        ("signal", "12288", &["--trace", "/dev/null"]),
    ] {
        if cfg!(not(target_arch = "x86_64")) && wake == "signal" {
            continue;
        }
        let mut command = run(&[&["--fabric", &fabric()], options].concat());
        command.env("MLX5EMU_WAKE", wake);
        command.arg(&program).args(["on-stack", size]);
        finish(command).expect_success(&format!("{wake}, {size} bytes"));
    }
}

#[test]
fn a_daemon_opens_the_device_after_the_launcher_has_exited() {
    let mut command = run(&["--fabric", &fabric()]);
    command.arg(compiled("life/life.c")).arg("daemon");
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut launcher = command.spawn().unwrap();
    let (mut input, mut output) = (
        launcher.stdin.take().unwrap(),
        launcher.stdout.take().unwrap(),
    );
    assert_eq!(launcher.wait().unwrap().code(), Some(3));
    input.write_all(b"go\n").unwrap();
    let mut text = String::new();
    output.read_to_string(&mut text).unwrap();
    assert_eq!(text, "moved data\n");
}
