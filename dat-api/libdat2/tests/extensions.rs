//! The extensions of uDAPL 2.0: a C program (`extensions/extensions.c`) on the emulated
//! adapter, on both data paths, on a device without atomic operations, over a network that
//! loses packets, and under valgrind.

use std::process::Command;
use std::sync::OnceLock;

use crate::c_program::CProgram;
use crate::emulator::{fabric, launcher};
use crate::tool::is_installed;

fn program() -> &'static CProgram {
    static PROGRAM: OnceLock<CProgram> = OnceLock::new();
    PROGRAM.get_or_init(|| CProgram::build("extensions", &["extensions.c"]))
}

/// Runs the program on a data path, with these options of the launcher, on an adapter
/// that has what the second word of the program says. Returns what it printed.
fn run(path: &str, options: &[&str], has: &str) -> String {
    run_under(&[], path, options, has)
}

/// As [`run`], under this program.
fn run_under(under: &[&str], path: &str, options: &[&str], has: &str) -> String {
    let program = program();
    let conf = program.libraries.join("empty.conf");
    std::fs::write(&conf, "").expect("the file can be written");
    let output = Command::new("timeout")
        .arg("300")
        .arg(launcher())
        .args(["run", "--fabric", &fabric()])
        .args(options)
        .arg("--")
        .args(under)
        .arg(&program.path)
        .args(["mlx5_0", has])
        .env("LD_LIBRARY_PATH", &program.libraries)
        .env("DAT_OVERRIDE", &conf)
        .env("DAT_PATH", path)
        .env("DAT_CM", "socket")
        .env("DAT_DBG_TYPE", "1")
        .output()
        .expect("timeout can be run");
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let stderr = String::from_utf8_lossy(&output.stderr);
    let report = format!("{:?}\n{stdout}{stderr}", output.status);
    assert!(output.status.success(), "{report}");
    assert!(stdout.contains("well\n"), "{report}");
    assert!(!stdout.contains("unknown"), "{report}");
    stdout
}

/// Every refusal has a cause that names the value.
fn has_causes(printed: &str) {
    for cause in [
        "the remote address 0x",
        "is not a multiple of 8: atomic operations need aligned memory",
        "the local segment has 7 bytes: an atomic operation needs 8 bytes",
        "the local segment is null: expected one of 8 bytes",
        "datagrams are not supported (no adapter has the attribute DAT_IB_UD)",
        "0x4711 is no operation: expected one of DAT_IB_OP",
        "these counters are not supported",
        "collective operations are not supported",
    ] {
        assert!(printed.contains(cause), "{cause}: {printed}");
    }
}

#[test]
fn extensions_work_on_the_direct_path() {
    has_causes(&run("direct", &[], "all"));
}

#[test]
fn extensions_work_on_the_verbs_path() {
    has_causes(&run("verbs", &[], "all"));
}

#[test]
fn a_device_without_atomic_operations_says_so_and_refuses_them() {
    for path in ["direct", "verbs"] {
        let printed = run(path, &["--limits", "no_atomics"], "no_atomics");
        let cause = "the device has no atomic operations (its atomic_cap is none)";
        assert!(printed.contains(cause), "{printed}");
    }
}

/// Each operation is executed once, and its event has its data.
#[test]
fn lost_and_late_packets_are_not_seen() {
    for path in ["direct", "verbs"] {
        run(path, &crate::c_program::FAULTS, "lossy");
    }
}

#[test]
fn extensions_are_clean_under_valgrind() {
    if !is_installed("valgrind") {
        return;
    }
    run_under(&crate::c_program::VALGRIND, "direct", &[], "all");
}
