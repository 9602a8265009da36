//! Threads that end inside calls, and agents that end their thread: a program in C
//! (`cancel/cancel.c`), on the emulated adapter, by every wait policy and on both
//! data paths; also under valgrind.

#[path = "support/emulator.rs"]
mod emulator;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use emulator::{fabric, launcher};

const SOURCES: [&str; 4] = ["cancel.c", "waits.c", "calls.c", "agents.c"];

const PARTS: [&str; 4] = ["evd", "cno", "hold", "agents"];

const VALGRIND: [&str; 6] = [
    "valgrind",
    "--quiet",
    "--error-exitcode=99",
    "--leak-check=full",
    "--errors-for-leak-kinds=definite",
    "--show-leak-kinds=definite",
];

/// The program, and a folder that has the library under the name it asks for.
fn built() -> &'static (PathBuf, PathBuf) {
    static BUILT: OnceLock<(PathBuf, PathBuf)> = OnceLock::new();
    BUILT.get_or_init(|| {
        // First: it may have to build the library anew.
        launcher();
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cancel");
        std::fs::create_dir_all(&folder).expect("the folder can be made");
        let tests = std::env::current_exe().expect("this binary has a path");
        let library = tests.parent().expect("a folder").join("libdat.so");
        let process = std::process::id();
        // Another test may do the same at the same time.
        let put = |name: &str, make: &dyn Fn(&Path)| {
            let mine = folder.join(format!("{name}.{process}"));
            make(&mine);
            std::fs::rename(&mine, folder.join(name)).expect("it can be renamed");
        };
        put("libdat.so.1", &|place| {
            let _ = std::fs::remove_file(place);
            std::os::unix::fs::symlink(&library, place).expect("a link can be made");
        });
        let base = Path::new(env!("CARGO_MANIFEST_DIR"));
        put("cancel", &|place| {
            let output = Command::new("cc")
                .args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror"])
                .args(["-pthread", "-I"])
                .arg(base.join("include"))
                .arg("-o")
                .arg(place)
                .args(SOURCES.map(|name| base.join("tests/cancel").join(name)))
                .arg(&library)
                .output()
                .expect("cc can be run");
            let complaint = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{complaint}");
        });
        (folder.join("cancel"), folder)
    })
}

/// Runs these parts, with a variable set.
fn run(under: &[&str], (variable, value): (&str, &str), parts: &[&str]) {
    let (program, libraries) = built();
    let output = Command::new("timeout")
        .arg("300")
        .arg(launcher())
        .args(["run", "--fabric", &fabric(), "--"])
        .args(under)
        .arg(program)
        .args(parts)
        .env("LD_LIBRARY_PATH", libraries)
        // Failing calls print, and printing is a cancellation point.
        .env("DAT_DBG_TYPE", "0x1001")
        .env(variable, value)
        .output()
        .expect("timeout can be run");
    let said = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    let told = format!("{:?}\n{said}{complaint}", output.status);
    assert!(output.status.success(), "{told}");
    for part in parts {
        assert!(said.contains(&format!("{part} well\n")), "{part}: {told}");
    }
    assert!(said.contains("closed\n"), "{told}");
}

#[test]
fn a_cancelled_wait_loses_no_event_however_it_waits() {
    for policy in ["adaptive", "adaptive:0:50", "block", "poll"] {
        run(&[], ("DAT_WAIT", policy), &["evd", "cno"]);
    }
}

#[test]
fn other_calls_hold_cancellation_off() {
    for path in ["direct", "verbs"] {
        run(&[], ("DAT_PATH", path), &["hold", "evd"]);
    }
}

#[test]
fn an_agent_may_end_its_thread() {
    run(&[], ("DAT_WAIT", "adaptive"), &["agents"]);
}

#[test]
fn what_ended_threads_had_is_given_back() {
    run(&VALGRIND, ("DAT_WAIT", "adaptive"), &PARTS);
}
