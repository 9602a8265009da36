//! Programs of verbs as they are often written.

use crate::common::{compiled, finish, run};

/// Runs a case of the program in `verbs/verbs.c`.
fn passes(case: &str) {
    let mut command = run::<&str>(&[]);
    command.arg(compiled("verbs/verbs.c")).arg(case);
    finish(command).expect_success(case);
}

#[test]
fn channels_that_do_not_block_and_edge_triggered_epoll() {
    passes("channels");
}

#[test]
fn a_program_with_signal_handlers_of_its_own() {
    passes("handlers");
}

#[test]
fn extended_completion_queues_and_requests() {
    passes("extended");
}

#[test]
fn messages_of_the_largest_size_and_one_more() {
    passes("largest");
}
