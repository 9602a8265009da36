//! Threads that end inside calls, agents that end their thread, and children of fork: a C program
//! (`cancel/cancel.c`) on the emulated adapter, with every wait policy and on
//! both data paths, and also under valgrind. `libdat2` compiles this file for uDAPL 2.0.

use std::process::Command;
use std::sync::OnceLock;

use crate::c_program::{CProgram, VALGRIND};
use crate::emulator::{fabric, launcher};
use crate::tool::is_installed;

const SOURCES: [&str; 5] = ["cancel.c", "waits.c", "calls.c", "agents.c", "children.c"];

const PARTS: [&str; 4] = ["evd", "cno", "hold", "agents"];

fn program() -> &'static CProgram {
    static PROGRAM: OnceLock<CProgram> = OnceLock::new();
    PROGRAM.get_or_init(|| CProgram::build("cancel", &SOURCES))
}

/// Runs these parts of the program, with an environment variable set.
fn run(under: &[&str], (variable, value): (&str, &str), parts: &[&str]) {
    let program = program();
    let output = Command::new("timeout")
        .arg("300")
        .arg(launcher())
        .args(["run", "--fabric", &fabric(), "--"])
        .args(under)
        .arg(&program.path)
        .args(parts)
        .env("LD_LIBRARY_PATH", &program.libraries)
        // Failed calls print, and printing is a cancellation point.
        .env("DAT_DBG_TYPE", "0x1001")
        // The waiters of a CNO leave the events, and count the triggers.
        .env("DAT_STRICT", "1")
        .env(variable, value)
        .output()
        .expect("timeout can be run");
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    let report = format!("{:?}\n{stdout}{stderr}", output.status);
    assert!(output.status.success(), "{report}");
    for part in parts {
        assert!(
            stdout.contains(&format!("{part} well\n")),
            "{part}: {report}"
        );
    }
    assert!(stdout.contains("closed\n"), "{report}");
}

#[test]
fn a_cancelled_wait_loses_no_event_however_it_waits() {
    for policy in ["adaptive", "adaptive:0:50", "block", "poll"] {
        run(&[], ("DAT_WAIT", policy), &["evd", "cno"]);
    }
}

#[test]
fn other_calls_disable_cancellation() {
    for path in ["direct", "verbs"] {
        run(&[], ("DAT_PATH", path), &["hold", "evd"]);
    }
}

#[test]
fn an_agent_may_end_its_thread() {
    run(&[], ("DAT_WAIT", "adaptive"), &["agents"]);
}

#[test]
fn children_that_end_open_adapters_or_start_programs_harm_no_connection() {
    for path in ["direct", "verbs"] {
        run(&[], ("DAT_PATH", path), &["children"]);
    }
}

#[test]
fn objects_of_ended_threads_are_released() {
    if !is_installed("valgrind") {
        return;
    }
    run(&VALGRIND, ("DAT_WAIT", "adaptive"), &PARTS);
}
