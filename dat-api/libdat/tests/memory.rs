//! Every call with each of its allocations failing in turn: a C program (`memory/memory.c`) on the
//! emulated adapter. `libdat2` compiles this file for uDAPL 2.0.

use std::process::{Command, Output};

use crate::c_program::CProgram;
use crate::emulator::{fabric, launcher};

/// Runs the program with these arguments and variables.
fn run(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let program = CProgram::build("memory", &["memory.c", "objects.c", "fail.c"]);
    Command::new("timeout")
        .arg("300")
        .arg(launcher())
        .args(["run", "--fabric", &fabric(), "--"])
        .arg(&program.path)
        .args(arguments)
        .env("LD_LIBRARY_PATH", &program.libraries)
        .envs(variables.iter().copied())
        .output()
        .expect("timeout can be run")
}

#[test]
fn a_call_without_memory_is_refused_and_loses_nothing() {
    for (manager, path) in [
        ("socket", "direct"),
        ("rdma_cm", "direct"),
        ("socket", "verbs"),
    ] {
        let output = run(&[], &[("DAT_CM", manager), ("DAT_PATH", path)]);
        let stdout = String::from_utf8_lossy(&output.stdout);
        let stderr = String::from_utf8_lossy(&output.stderr);
        let status = output.status;
        let passed = status.success() && stdout.ends_with("passed\n");
        assert!(passed, "{manager}, {path}: {status:?}\n{stdout}{stderr}");
    }
}

#[test]
fn causes_are_printed_where_they_are_asked_for() {
    for (places, expected) in [("1", [true, false]), ("4", [false, true]), ("5", [true; 2])] {
        let output = run(
            &["zone"],
            &[("DAT_DBG_TYPE", "1"), ("DAT_DBG_DEST", places)],
        );
        assert!(output.status.success(), "{output:?}");
        let found = [output.stdout, output.stderr].map(|bytes| {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            text.contains("dat_pz_create") && text.contains("no memory left")
        });
        assert_eq!(found, expected, "DAT_DBG_DEST={places}");
    }
}

#[test]
fn a_rejection_by_the_program_of_the_peer_is_called_so() {
    for manager in ["socket", "rdma_cm"] {
        let output = run(
            &["rejecting"],
            &[("DAT_DBG_TYPE", "1"), ("DAT_CM", manager)],
        );
        let stdout = String::from_utf8_lossy(&output.stdout);
        let expected = "refused: the peer's program rejected it";
        assert!(stdout.contains(expected), "{manager}: {stdout}");
    }
}
