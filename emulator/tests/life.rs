//! The device across the life of a process: forks, other ways to start a child, and daemons.

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
